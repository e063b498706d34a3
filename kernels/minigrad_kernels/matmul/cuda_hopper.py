"""What the rung for Hopper (sm_90a) is written with: tiles by the tensor memory accelerator, products by wgmma.

Tensor maps: how kernels tell the tensor memory accelerator of Hopper where a matrix lies and which boxes to bring.

The driver makes them on the host, 128 bytes each, and kernels get tables of them by pointer. A table is copied to the
device before the launch; that its map is read as it was written is what fence.proxy.tensormap::generic.acquire.sys is
for, which every block that uses a map executes first (see tma.acquire_map): the copy is an access through the generic
proxy, at the scope of the system because the host wrote it, and bulk copies read maps through the tensormap proxy.

An mbarrier, 8 bytes of shared memory, has phases: one is over when as many threads have arrived as it was made for, and
all bytes that they said to expect have come. Who waits gives the parity of the phase: 0 for the first one, then 1, ...

wgmma is a product by four warps of operands in shared memory.

Source  NVIDIA, "CUDA Driver API", Tensor Map Object Management; "CUDA C++ Programming Guide", Tensor Memory Access;
        "Parallel Thread Execution ISA", mbarrier, cp.async.bulk.tensor, Proxies, Asynchronous Warpgroup Level Matrix
        Instructions
"""

import ctypes
import functools
import sys

import numpy as np
from llvmlite import ir

from ..errors import StateError
from ..toolchain.cuda.intrinsics import LLVM, LONG, f32, i32, inline_ptx, intrinsic, types, u32, u64
from ..toolchain.cuda.memory import address, kept

__all__ = [
    "acquire_map", "arrive", "expect", "load_tile", "make_barrier", "make_wgmma", "tables", "wait", "wgmma_begin",
    "wgmma_commit", "wgmma_wait", "wgmma_wait_but_one", "written",
]  # fmt: skip

# ---- words of kernels: tiles that travel, and how warps wait for them --------------------------------------------

_text = "mbarrier.init.shared::cta.b64 [$0], $1;"
make_barrier = inline_ptx("make_barrier", _text, None, [u32, u32], effects=True)  # (address, arrivals of a phase)
_text = "mbarrier.arrive.shared::cta.b64 _, [$0];"
arrive = inline_ptx("arrive", _text, None, [u32], effects=True)
_text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
expect = inline_ptx("expect", _text, None, [u32, u32], effects=True)  # (address, bytes): arrive, and expect them
_text = "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra OVER; bra AGAIN; OVER: }"
wait = inline_ptx("wait", _text, None, [u32, u32], effects=True)  # (address, parity)
# (shared address, tensor map, first column, first row, mbarrier): the tile travels; outside of the matrix it is zero
_text = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];"
load_tile = inline_ptx("load_tile", _text, None, [u32, u64, i32, i32, u32], effects=True)
# (tensor map): what the host wrote into it is there for the accelerator, too; once in a block
_text = "fence.proxy.tensormap::generic.acquire.sys [$0], 128;"
acquire_map = inline_ptx("acquire_map", _text, None, [u64], effects=True)


# ---- words of kernels: products ----------------------------------------------------------------------------------

# Before products: what this warp wrote to registers and shared memory is there.
wgmma_begin = inline_ptx("wgmma_begin", "wgmma.fence.sync.aligned;", None, [], effects=True)
wgmma_commit = inline_ptx("wgmma_commit", "wgmma.commit_group.sync.aligned;", None, [], effects=True)
wgmma_wait = inline_ptx("wgmma_wait", "wgmma.wait_group.sync.aligned 0;", None, [], effects=True)
wgmma_wait_but_one = inline_ptx("wgmma_wait1", "wgmma.wait_group.sync.aligned 1;", None, [], effects=True)  # group
# What this thread's copies brought to shared memory is there for products, too.
written = inline_ptx("written", "fence.proxy.async.shared::cta;", None, [], effects=True)


def make_wgmma(columns):
    """An intrinsic (sums, a, b): adds the product of 64 rows, 16 steps of k and so many columns, of type bf16.

    sums: a local array of columns / 2 floats; a, b: descriptors of operands in shared memory, 64-bit integers, both
    along k. It goes on while the threads do: see wgmma_commit and wgmma_wait.
    """
    count = columns // 2
    sums, last = ",".join(f"${i}" for i in range(count)), 2 * count
    shape = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16"
    text = f"{shape} {{{sums}}}, ${last}, ${last + 1}, p, 1, 1, 0, 0;"
    text = f"{{ .reg .pred p; setp.eq.u32 p, 1, 1; {text} }}"  # p: add to the sums
    letters = ",".join(["=f"] * count + [str(i) for i in range(count)] + ["l", "l", "~{memory}"])
    single = LLVM[f32]
    takes = ir.FunctionType(ir.LiteralStructType([single] * count), [single] * count + [LONG, LONG])
    code = ir.InlineAsm(takes, text, letters, side_effect=True)

    def wgmma(typing_context, sums, a, b):
        def generate(context, builder, signature, values):
            first = context.make_array(signature.args[0])(context, builder, value=values[0]).data
            places = [builder.gep(first, [LONG(i)]) for i in range(count)]
            out = builder.call(code, [*(builder.load(place) for place in places), *values[1:]])
            for i, place in enumerate(places):
                builder.store(builder.extract_value(out, i), place)
            return context.get_dummy_value()

        return types.void(sums, u64, u64), generate

    made = intrinsic(wgmma)
    made.source = repr((text, letters))  # for the keys of the kernels that use it
    return made


# ---- tensor maps, on the host ------------------------------------------------------------------------------------

KINDS = {"uint16": 1, "float16": 6, "bfloat16": 9}  # CUtensorMapDataType
# No interleaving; how lines turn; what the cache loads; outside.
PLAIN, TURNED_128, SECOND_CACHE_256, ZEROS = 0, 3, 3, 0
ALIGNMENT, WORDS = 64, 16  # bytes; of 64 bits in a map


@functools.cache
def _driver():
    """The driver's function; CuPy offers none for it.

    Errors  RuntimeError where there is no driver, or one from before CUDA 12.0
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        function = ctypes.CDLL(name).cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise StateError(f"tensor map: {name} lacks cuTensorMapEncodeTiled: {error}; ask for a lower rung") from error
    number, sizes, boxes = ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)
    function.argtypes = (
        ctypes.c_void_p, number, ctypes.c_uint32, ctypes.c_void_p, sizes, sizes, boxes, boxes, *(number,) * 4,
    )  # fmt: skip
    function.restype = number
    return function


def _encoded(kind, map_):
    """The 16 words of a map for a GPU; map_: an interpreter's TensorMap."""
    memory = (ctypes.c_uint64 * (WORDS + ALIGNMENT // 8))()
    skip = -ctypes.addressof(memory) % ALIGNMENT // 8
    pair, short = ctypes.c_uint64 * 2, ctypes.c_uint32 * 2
    result = _driver()(
        ctypes.addressof(memory) + 8 * skip, KINDS[kind], 2, map_.address, pair(map_.columns, map_.rows),
        (ctypes.c_uint64 * 1)(map_.stride), short(map_.box_columns, map_.box_rows), short(1, 1),
        PLAIN, TURNED_128, SECOND_CACHE_256, ZEROS,
    )  # fmt: skip
    if result:
        raise StateError(f"tensor map: the driver refuses {map_} with error {result}; ask for a lower rung")
    return np.array(memory[skip : skip + WORDS], np.uint64)


@functools.lru_cache(maxsize=1024)
def _table(kind, map_, apart, count, on_gpu):
    from ..interpreter.tensor_map import encode

    maps = (map_._replace(address=map_.address + i * apart) for i in range(count))
    return np.concatenate([_encoded(kind, one) if on_gpu else encode(one) for one in maps])


def tables(array, rows, columns, stride, box, apart, count):
    """Maps of `count` matrices that begin at the first element of an array, on its device: 16 words for each.

    stride: from row to row, apart: from matrix to matrix, in elements; 0: one map serves all. box: (rows, columns)
    Errors  ValueError for what maps cannot describe, RuntimeError where the driver cannot make them
    """
    from ..interpreter.tensor_map import TensorMap

    size, count = array.itemsize, count if apart else 1
    if rows and columns:
        map_ = TensorMap(address(array), rows, columns, stride * size if rows > 1 else 16, *box, size)
        table = _table(array.dtype.name, map_, apart * size, count, not isinstance(array, np.ndarray))
    else:  # nobody will read it
        table = np.zeros(count * WORDS, np.uint64)
    return kept(table, array)
