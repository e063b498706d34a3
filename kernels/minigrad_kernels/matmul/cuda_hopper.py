"""The top of the matrix product's ladder, for Hopper alone: tiles that a copy engine, TMA, brings, multiplied by wgmma.

Four warps multiply 64 rows at once by one instruction, which reads both operands from shared memory. bfloat16, with
a and b along k. It runs on sm_90a alone, where its name asks for it, and is never chosen. The interpreter has, by the
rules of the manual: operands as descriptors and tensor maps say, waits, fences. What it cannot tell is time, the
driver's own form of the maps, and whether registers of sums are left alone until their wait: an H100 gave the results.

setmaxnreg is left out: where the linker joins units of compilation, as it does here, the assembler ignores it. With one
warp beside those that multiply, 288 threads may have 224 registers each, and that is enough.

Tensor maps: how kernels tell the tensor memory accelerator of Hopper where a matrix lies and which boxes to bring.

The driver makes them on the host, 128 bytes each, and kernels get them by pointer. A map is copied to the device before
the launch; that it is read as it was written is what fence.proxy.tensormap::generic.acquire.sys is
for, which every block that uses a map executes first (see tma.acquire_map): the copy is an access through the generic
proxy, at the scope of the system because the host wrote it, and bulk copies read maps through the tensormap proxy.

An mbarrier, 8 bytes of shared memory, has phases: one is over when as many threads have arrived as it was made for, and
all bytes that they said to expect have come. Who waits gives the parity of the phase: 0 for the first one, then 1, ...

wgmma is a product by four warps of operands in shared memory.

Source  NVIDIA, "CUDA Driver API", Tensor Map Object Management; "CUDA C++ Programming Guide", Tensor Memory Access;
        "Parallel Thread Execution ISA", mbarrier, cp.async.bulk.tensor, Proxies, Asynchronous Warpgroup Level Matrix
        Instructions, Matrix Descriptors; "CUTLASS", Efficient GEMM in CUDA, Hopper Warp Specialization
"""

import ctypes
import functools
import sys

import numpy as np

from ..errors import StateError
from ..toolchain.cuda import cuda, f32, global_address, i32, kernel, shared_address, u32, u64, unroll
from ..toolchain.cuda.intrinsics import inline_ptx
from ..toolchain.cuda.memory import address, kept
from ..toolchain.cuda.wgmma import make_wgmma
from .cuda_register import signature_of
from .cuda_tensor import CORES, make_end, tile_of

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


# ---- tensor maps, on the host ------------------------------------------------------------------------------------

BFLOAT16 = 9  # of CUtensorMapDataType
MODES = 0, 3, 3, 0  # no interleaving; lines turned within 128 bytes; 256 bytes for the second cache; zeros outside
ALIGNMENT, WORDS = 64, 16  # bytes; of 64 bits in a map


@functools.cache
def _driver():
    """The driver's function, of CUDA 12.0 or newer; CuPy offers none for it."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1").cuTensorMapEncodeTiled


@functools.lru_cache(maxsize=1024)
def _encoded(map_):
    """The 16 words of a map for a GPU; map_: an interpreter's TensorMap."""
    memory = (ctypes.c_uint64 * (WORDS + ALIGNMENT // 8))()
    skip = -ctypes.addressof(memory) % ALIGNMENT // 8
    place, matrix = ctypes.c_void_p(ctypes.addressof(memory) + 8 * skip), ctypes.c_void_p(map_.address)
    sizes, strides = (ctypes.c_uint64 * 2)(map_.columns, map_.rows), (ctypes.c_uint64 * 1)(map_.stride)
    box, steps = (ctypes.c_uint32 * 2)(map_.box_columns, map_.box_rows), (ctypes.c_uint32 * 2)(1, 1)
    result = _driver()(place, BFLOAT16, 2, matrix, sizes, strides, box, steps, *MODES)
    if result:
        raise StateError(f"tensor map: the driver refuses {map_} with error {result}; ask for a lower rung")
    return np.array(memory[skip : skip + WORDS], np.uint64)


def _map_of(array, rows, columns, stride, height):
    """The map of a matrix that begins at the first element of an array, on its device: 16 words.

    stride: from row to row, in elements; height: rows of a box
    Errors  ValueError for what maps cannot describe, RuntimeError where the driver cannot make them
    """
    from ..interpreter.tensor_map import TensorMap, encode

    map_ = TensorMap(address(array), rows, columns, 2 * stride if rows > 1 else 16, height, STEPS, 2)
    return kept((encode if isinstance(array, np.ndarray) else _encoded)(map_), array)


# ---- the rung --------------------------------------------------------------------------------------------------

ROWS, COLUMNS, STEPS = 128, 256, 64  # of a tile; STEPS: of k
LINE = 2 * STEPS  # bytes of a row or column of a tile
WARPS = 8  # that multiply: two groups of four, each with 64 rows
THREADS = 32 * WARPS + 32  # one more warp, of which one thread works
STAGES = 4
A_BYTES, STAGE = ROWS * LINE, (ROWS + COLUMNS) * LINE
GATES = STAGES * STAGE  # where the mbarriers of the stages lie: full, 8 bytes further empty
SHARED = GATES + 16 * STAGES + 1024  # tiles begin at multiples of 1024
PART, HELD = 32, 16  # columns whose results are written together, and how many of them a thread has
SUMS = COLUMNS // 2
KIND = (1 << 62) | (1024 // 16 << 32) | (1 << 16)  # of a descriptor: chunks turned within 1024 bytes, 8 lines of them


def fits(p):
    """Whether rows of a and b follow each other in memory, with strides at least as long as a row; and no batch."""
    return p.matrices == 1 and p.k > 0 and (p.m == 1 or p.a_m >= p.k) and (p.n == 1 or p.b_n >= p.k)


def maps_of(p, a, b):
    """The tensor maps of both operands."""
    return _map_of(a, p.m, p.k, p.a_m, ROWS), _map_of(b, p.n, p.k, p.b_n, COLUMNS)


# ---- the kernel ------------------------------------------------------------------------------------------------------

multiply = make_wgmma(COLUMNS)
end = make_end(CORES["bfloat16"], 1, PART // 8)
SIGNATURE = signature_of("u16*", "i64").replace("i32 m,", "u64* a_map, u64* b_map, i32 m,")


@kernel(SIGNATURE, threads=THREADS, blocks=1, lowest="sm_90a", opcodes=("HGMMA", "UTMALDG"), variant="bfloat16")
def tma(a, b, bias, residual, out, a_map, b_map, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
    """One idea: one thread has whole tiles brought, eight warps do nothing but multiply, and no barrier stops all.

    Traffic    a is read ceil(N / 256) times, b ceil(M / 128) times; one thread gives a handful of commands a tile
    Resources  193 KB of shared memory, 128 sums in registers

    A stage is full when its bytes have come, and empty when all eight warps have arrived: each when its products
    of the stage are over, while those of the next one go on. The phase of a stage's n-th use has the parity of n.
    """
    memory, thread = cuda.shared.array(0, u32, alignment=1024), u32(cuda.threadIdx.x)
    total, part = cuda.local.array(SUMS, f32), cuda.local.array(HELD, f32)
    warp, tiles = u32(thread >> u32(5)), i32(u32(u32(k) + u32(STEPS - 1)) // u32(STEPS))
    top, first = tile_of(m, n, ROWS, COLUMNS)
    base = u32((shared_address(memory, 0) + u32(1023)) & u32(0xFFFFFC00))
    gates = u32(base + u32(GATES))
    if thread == u32(0):
        for i in range(STAGES):
            unroll(0)
            make_barrier(u32(gates + u32(16 * i)), u32(1))
            make_barrier(u32(gates + u32(16 * i + 8)), u32(WARPS))
        written()
    cuda.syncthreads()
    stage, parity, tile = u32(0), u32(0), i32(0)
    if warp >= u32(WARPS):
        if thread == u32(32 * WARPS):
            a_map, b_map = global_address(a_map, 0), global_address(b_map, 0)
            acquire_map(a_map)
            acquire_map(b_map)
            while tile < tiles:
                full, place = u32(gates + u32(stage << u32(4))), u32(base + u32(stage * u32(STAGE)))
                wait(u32(full + u32(8)), u32(parity ^ u32(1)))
                expect(full, u32(STAGE))
                load_tile(place, a_map, i32(tile * STEPS), top, full)
                load_tile(u32(place + u32(A_BYTES)), b_map, i32(tile * STEPS), first, full)
                tile, stage = i32(tile + 1), u32(stage + u32(1))
                if stage == u32(STAGES):
                    stage, parity = u32(0), u32(parity ^ u32(1))
    else:
        row = i32(u32(warp >> u32(2)) * u32(64))  # of the group
        for i in range(SUMS):
            unroll(0)
            total[i] = f32(0)
        before = gates
        if tiles > 0:  # the wait stands in here, so that no move of a sum comes between products and their wait
            while tile < tiles:
                full, place = u32(gates + u32(stage << u32(4))), u32(base + u32(stage * u32(STAGE)))
                wait(full, parity)
                wgmma_begin()
                a_from, b_from = u32(place + u32(row * LINE)), u32(place + u32(A_BYTES))
                for i in range(STEPS // 16):
                    unroll(0)
                    a_tile = u64(KIND) | u64((u32(a_from + u32(32 * i)) & u32(0x3FFFF)) >> u32(4))
                    b_tile = u64(KIND) | u64((u32(b_from + u32(32 * i)) & u32(0x3FFFF)) >> u32(4))
                    multiply(total, a_tile, b_tile)
                wgmma_commit()
                wgmma_wait_but_one()
                if tile > 0 and (thread & u32(31)) == u32(0):
                    arrive(u32(before + u32(8)))
                before, tile, stage = full, i32(tile + 1), u32(stage + u32(1))
                if stage == u32(STAGES):
                    stage, parity = u32(0), u32(parity ^ u32(1))
            wgmma_wait()
        row = i32(top + row + i32(warp & u32(3)) * 16)
        for i in range(COLUMNS // PART):
            unroll(0)
            for j in range(HELD):
                unroll(0)
                part[j] = total[HELD * i + j]
            end(part, out, bias, residual, row, i32(first + PART * i), m, n, out_z, flags)
