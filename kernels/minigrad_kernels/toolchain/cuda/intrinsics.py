"""The words that CUDA kernels are written in: Numba's `cuda`, element types, and what Numba lacks.

Kernels get all of it from here, so that one module stands between them and the compiler. Numba lacks 128-bit loads
and stores, a mark for loops to unroll, and every instruction that has no name in Python: `inline_ptx` makes a
function of any of those.

Where no compiler is installed, and in Numba's simulator, the names still exist, so that kernels can be imported, and
interpreted from PTX of an archive; only compiling says what is missing.

Source  NVIDIA, "Parallel Thread Execution ISA", version 9.0; "CUDA C++ Programming Guide", version 13.0
"""

import ctypes
import os
from importlib.util import find_spec
from typing import Any

import numpy as np
from llvmlite import ir

SIMULATOR = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"  # Numba's: it runs kernels in Python, compiles nothing
COMPILER = find_spec("numba_cuda") is not None and not SIMULATOR
if COMPILER:
    from numba import cuda
    from numba.cuda import types
    from numba.cuda.core.errors import RequireLiteralValue
    from numba.cuda.extending import intrinsic
else:
    from numba.core import types
    from numba.core.errors import RequireLiteralValue

    cuda: Any = object()  # type: ignore[no-redef]
    if SIMULATOR:
        from numba import cuda

    def intrinsic(function):
        return function


__all__ = [
    "cuda", "f32", "f64", "i32", "i64", "u16", "u32", "u64",
    "bf16x2", "bits", "cp_async", "cp_async_commit", "cp_async_wait", "device", "f16x2", "from_bits",
    "global_address", "index_of", "inline_ptx", "ldmatrix", "ldmatrix_trans", "load2_words", "load4",
    "mma_bf16", "mma_f16", "mma_tf32", "narrow_f16", "offset", "outer_product", "pointer_at", "shared_address",
    "store2_words", "store4", "store4_words", "tf32", "unroll", "widen_f16", "window_at",
]  # fmt: skip

f32, f64 = types.float32, types.float64
i32, i64 = types.int32, types.int64
u16, u32, u64 = types.uint16, types.uint32, types.uint64

HALF, WORD, LONG = ir.IntType(16), ir.IntType(32), ir.IntType(64)
GLOBAL, SHARED = 1, 3  # address spaces of the machine
LETTERS = {f32: "f", f64: "d", u16: "h", i32: "r", u32: "r", i64: "l", u64: "l"}  # of inline assembly
LLVM = {f32: ir.FloatType(), f64: ir.DoubleType(), u16: HALF, i32: WORD, u32: WORD, i64: LONG, u64: LONG}


def device(function):
    """A function that kernels call; its body is put in their place before types are known, which asks for no GPU."""
    if COMPILER:
        return cuda.jit(device=True, inline="always", lineinfo=True)(function)
    return cuda.jit(device=True)(function) if SIMULATOR else function


@device
def index_of(number, rows, columns, channels):
    """(n, i, j, c) of the element with this number among (N, rows, columns, channels), the last axis first.

    All are below 2^32: a quotient of 64 bits would take four times as many instructions.
    """
    pixel = i64(u32(u32(number) // u32(channels)))
    line = i64(u32(u32(pixel) // u32(columns)))
    image = i64(u32(u32(line) // u32(rows)))
    return image, line - image * rows, pixel - line * columns, number - pixel * channels


@device
def window_at(place, step, windows):
    """The window that begins at a place, where one does every `step` places; -1 where none does."""
    window = i64(u32(u32(max(place, 0)) // u32(step)))
    return window if window * step == place and window < windows else -1


# ---- pointers ----------------------------------------------------------------------------------------------------


def _element(context, builder, signature, values):
    """The address of element values[1] of values[0], a pointer or a 1-D array, without looking at its bounds."""
    kind, base = signature.args[0], values[0]
    if isinstance(kind, types.Array):
        base = context.make_array(kind)(context, builder, value=base).data
    index = context.cast(builder, values[1], signature.args[1], i64)
    return builder.gep(base, [index])


@intrinsic
def offset(typing_context, pointer, n):
    """The pointer n elements further on."""
    return pointer(pointer, n), _element


@intrinsic
def pointer_at(typing_context, address, like):
    """An address in global memory, a 64-bit integer, as a pointer of the type of `like`."""

    def generate(context, builder, signature, values):
        kind = context.get_value_type(signature.return_type)
        return builder.addrspacecast(builder.inttoptr(values[0], kind.pointee.as_pointer(GLOBAL)), kind)

    return like(address, like), generate


def _address(space, integer, result):
    def of(typing_context, memory, n):
        def generate(context, builder, signature, values):
            element = _element(context, builder, signature, values)
            return builder.ptrtoint(builder.addrspacecast(element, element.type.pointee.as_pointer(space)), integer)

        return result(memory, n), generate

    return of


shared_address = intrinsic(_address(SHARED, WORD, u32))  # (array, n): where element n of a shared array lies, in bytes
global_address = intrinsic(_address(GLOBAL, LONG, u64))  # (pointer, n): where element n lies, in bytes


# ---- loads and stores of several elements ------------------------------------------------------------------------


def _gathered(context, builder, kind, vector):
    """A vector of LLVM as a tuple of Numba."""
    return context.make_tuple(builder, kind, [builder.extract_element(vector, WORD(i)) for i in range(kind.count)])


def _scattered(builder, kind, values):
    """A tuple of Numba as a vector of LLVM."""
    vector = ir.Constant(ir.VectorType(LLVM[kind.dtype], kind.count), ir.Undefined)
    for i in range(kind.count):
        vector = builder.insert_element(vector, builder.extract_value(values, i), WORD(i))
    return vector


def _several(count, kind=None):
    """Intrinsics that read and write so many elements of 32 bits at once, of a type or of that of the memory."""

    def load(typing_context, pointer, n):
        result = types.UniTuple(kind or pointer.dtype, count)

        def generate(context, builder, signature, values):
            place = _element(context, builder, signature, values)
            vector = ir.VectorType(LLVM[result.dtype], count).as_pointer()
            return _gathered(context, builder, result, builder.load(builder.bitcast(place, vector), align=4 * count))

        return result(pointer, n), generate

    def store(typing_context, pointer, n, elements):
        def generate(context, builder, signature, values):
            place = _element(context, builder, signature, values)
            vector = _scattered(builder, signature.args[2], values[2])
            builder.store(vector, builder.bitcast(place, vector.type.as_pointer()), align=4 * count)
            return context.get_dummy_value()

        return types.void(pointer, n, elements), generate

    return intrinsic(load), intrinsic(store)


# (pointer or shared array, n) and (..., a tuple): elements n to n + 3, from a multiple of 16 bytes on
load4, store4 = _several(4)
# The same for words, whatever the elements of the memory are: element n lies at a multiple of 8 or 16 bytes.
load2_words, store2_words = _several(2, u32)
_, store4_words = _several(4, u32)


# ---- arithmetic --------------------------------------------------------------------------------------------------


@intrinsic
def outer_product(typing_context, sums, a, b):
    """sums[i*N + j] += a[i] * b[j] for tuples a of M and b of N floats: M*N fused multiply-adds in registers."""

    def generate(context, builder, signature, values):
        place = context.make_array(signature.args[0])(context, builder, value=values[0]).data
        rows, columns = signature.args[1].count, signature.args[2].count
        for i in range(rows):
            left = builder.extract_value(values[1], i)
            for j in range(columns):
                cell = builder.gep(place, [LONG(i * columns + j)])
                right = builder.extract_value(values[2], j)
                builder.store(builder.fma(left, right, builder.load(cell)), cell)
        return context.get_dummy_value()

    return types.void(sums, a, b), generate


UNROLL = "minigrad.unroll."  # the mark's name in LLVM's IR; its number follows


@intrinsic
def unroll(typing_context, count):
    """Mark a loop, as the first statement of its body: 0 unrolls it wholly, 1 not at all, k by k. A literal."""
    if not isinstance(count, types.IntegerLiteral):
        raise RequireLiteralValue("unroll: wants a literal number")

    def generate(context, builder, signature, values):
        name = f"{UNROLL}{count.literal_value}"
        mark = builder.module.globals.get(name)
        builder.call(mark or ir.Function(builder.module, ir.FunctionType(ir.VoidType(), []), name), [])
        return context.get_dummy_value()

    return types.void(count), generate


if SIMULATOR:
    unroll = lambda count: None  # loops run as they are written
    offset = lambda pointer, n: pointer[n:]
    whole = lambda address: (ctypes.c_char * (1 << 40)).from_address(int(address))  # more memory than there is
    pointer_at = lambda address, like: np.frombuffer(whole(address), like.dtype)  # type: ignore[call-overload]


# ---- instructions by their name in PTX ---------------------------------------------------------------------------


def inline_ptx(name, template, result, arguments, effects=False):
    """A function for kernels that is one piece of PTX: $0, $1, ... stand for its results, then its arguments.

    result: None, a type, or a types.UniTuple; arguments: types, or types.UniTuple whose elements are counted singly.
    effects: it does more than give a result, so it stays where it is and no access to memory moves across it.
    """
    results = [] if result is None else list(result) if isinstance(result, types.UniTuple) else [result]
    letters = [LETTERS[kind] for argument in arguments for kind in _singly(argument)]
    constraints = ["=" + LETTERS[kind] for kind in results] + letters + ["~{memory}"] * effects
    kinds = [LLVM[kind] for kind in results]
    gives = ir.VoidType() if not kinds else kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
    takes = [LLVM[kind] for argument in arguments for kind in _singly(argument)]
    code = ir.InlineAsm(ir.FunctionType(gives, takes), template, ",".join(constraints), side_effect=effects)

    def generate(context, builder, signature, values):
        single = []
        for kind, value in zip(arguments, values, strict=True):
            many = isinstance(kind, types.UniTuple)
            single += [builder.extract_value(value, i) for i in range(kind.count)] if many else [value]
        out = builder.call(code, single)
        if len(results) > 1:
            return context.make_tuple(builder, result, [builder.extract_value(out, i) for i in range(len(results))])
        return out if results else context.get_dummy_value()

    signature = (types.void if result is None else result)(*arguments)
    made = _named(name, arguments, signature, generate)
    made.source = repr((template, constraints, str(signature)))  # for the keys of the kernels that use it
    return made


def _singly(kind):
    return list(kind) if isinstance(kind, types.UniTuple) else [kind]


def _named(name, arguments, signature, generate):
    """An intrinsic with as many arguments as it takes: Numba reads their number off the function."""
    names = [f"argument{i}" for i in range(len(arguments))]
    space = {"signature": signature, "generate": generate}
    exec(f"def {name}({', '.join(['context', *names])}): return signature, generate", space)
    return intrinsic(space[name])


def _mma(name, shape, kind):
    """d = a b + c by a warp on tensor cores; a, b, c and d are spread over its lanes as the manual says."""
    text = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, "
    arguments = [types.UniTuple(u32, 4), types.UniTuple(u32, 2), types.UniTuple(f32, 4)]
    return inline_ptx(name, text + "{$10,$11,$12,$13};", types.UniTuple(f32, 4), arguments)


mma_f16 = _mma("mma_f16", "m16n8k16", "f16")
mma_bf16 = _mma("mma_bf16", "m16n8k16", "bf16")
mma_tf32 = _mma("mma_tf32", "m16n8k8", "tf32")
# (address of one row of 8 halves): four 8x8 matrices, or what their transposes give, each lane giving one row's address
_read = "ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{$0,$1,$2,$3}}, [$4];"
ldmatrix = inline_ptx("ldmatrix", _read.format(""), types.UniTuple(u32, 4), [u32], effects=True)
ldmatrix_trans = inline_ptx("ldmatrix_trans", _read.format(".trans"), types.UniTuple(u32, 4), [u32], effects=True)
# (shared address, global address, bytes): 16 bytes travel while the thread goes on; those past `bytes` become zero
cp_async = inline_ptx("cp_async", "cp.async.cg.shared.global [$0], [$1], 16, $2;", None, [u32, u64, u32], effects=True)
cp_async_commit = inline_ptx("cp_async_commit", "cp.async.commit_group;", None, [], effects=True)


def cp_async_wait(groups):
    """A function for kernels that waits until at most that many of the thread's last groups still travel."""
    return inline_ptx(f"cp_async_wait{groups}", f"cp.async.wait_group {groups};", None, [], effects=True)


bits = inline_ptx("bits", "mov.b32 $0, $1;", u32, [f32])  # (x): the bits of a float
tf32 = inline_ptx("tf32", "cvt.rna.tf32.f32 $0, $1;", u32, [f32])  # (x): the nearest tf32
from_bits = inline_ptx("from_bits", "mov.b32 $0, $1;", f32, [u32])  # (x): the float of these bits
widen_f16 = inline_ptx("widen_f16", "cvt.f32.f16 $0, $1;", f32, [u16])  # (x): a float16, by its bits, as a float
f16x2 = inline_ptx("f16x2", "cvt.rn.f16x2.f32 $0, $1, $2;", u32, [f32, f32])  # (high, low), two float16; from sm_80 on
narrow_f16 = inline_ptx("narrow_f16", "cvt.rn.f16.f32 $0, $1;", u16, [f32])  # (x): the nearest float16, by its bits
bf16x2 = inline_ptx("bf16x2", "cvt.rn.bf16x2.f32 $0, $1, $2;", u32, [f32, f32])  # (high, low), two bfloat16
