"""Random functions of one element, compiled as CUDA kernels and run by Python itself: the same text, two machines.

Python's integers have no width and its control flow no warps, so what it computes owes nothing to a compiler or to the
interpreter. Left out is what the compiler may decide: overflow of signed 64-bit numbers (sums and products of i64 go
by way of u64), conversion of floats out of range, signs of NaN, and sums of products, which it may fuse.
"""

import math
import random
from types import SimpleNamespace

import numpy as np

from minigrad_kernels.toolchain import cuda as words
from minigrad_kernels.toolchain.cuda import Kernel, compiler

DTYPES = {
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
    "i64": np.int64, "u64": np.uint64, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
FLOATS = ("f32", "f64")
WHOLE = ("i32", "u32", "i64", "u64", "u16")  # of variables; arrays have the others too
LIMITS = {"i32": 2e9, "u32": 4e9, "i64": 9e18, "u64": 1.8e19, "u16": 65000.0}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.5,
    2.5,
    math.inf,
    -math.inf,
    math.nan,
    1e-45,
    1e-40,
    5e-324,
    3.4e38,
    2.0**31,
    2.0**63,
]


class Writer:
    """Writes a program; a random number generator decides everything."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.choose = self.random.choice
        self.products = self.random.random() < 0.5  # of floats; else sums
        self.variables = {kind: [f"{kind}_{i}" for i in range(2)] for kind in (*WHOLE, *FLOATS)}
        self.lines: list[str] = []
        self.loops = self.count = 0

    def program(self, statements=10):
        """The text of a kernel, and the kinds of its inputs; it writes what all variables end as."""
        inputs = [(f"x_{kind}_{i}", kind) for kind in DTYPES for i in range(2)]
        outputs = [(f"out_{kind}_{i}", kind) for kind in self.variables for i in range(2)] + [("out_table", "u32")]
        self.line(0, "t = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)")
        self.line(0, "if t >= n:")
        self.line(1, "return")
        for kind in self.variables:
            for i in range(2):
                self.line(0, f"{kind}_{i} = {kind}(x_{kind}_{i}[t])")
        for kind in ("i8", "u8", "i16"):
            self.line(0, f"i32_{{0}} = i32(i32_{{0}} ^ i32(x_{kind}_{{0}}[t]))".format(self.choose((0, 1))))
        self.line(0, "table = cuda.local.array(8, u32)")
        self.line(0, "for k in range(8):")
        self.line(1, "table[k] = u32(i32_0 + k)")
        for _ in range(statements):
            self.statement(0, 2)
        for kind, names in self.variables.items():
            for i, name in enumerate(names):
                self.line(0, f"out_{kind}_{i}[t] = {name}")
        self.line(0, "out_table[t] = table[i32_1 & 7]")
        arguments = ", ".join([name for name, _ in inputs + outputs] + ["n"])
        return f"def program({arguments}):\n" + "\n".join(self.lines) + "\n", inputs, outputs

    def line(self, depth, text):
        self.lines.append("    " * (depth + 1) + text)

    # ---- statements ----------------------------------------------------------------------------------------------

    def statement(self, depth, nesting):
        shape = self.random.randrange(10) if nesting else 0
        kind = self.choose([*self.variables])
        if shape < 5:
            self.line(depth, f"{self.choose(self.variables[kind])} = {self.expression(kind, 3)}")
        elif shape == 5:
            self.line(depth, f"table[{self.expression('i32', 1)} & 7] = {self.expression('u32', 2)}")
        elif shape < 8 or self.loops == 2:
            self.line(depth, f"if {self.condition(2)}:")
            self.block(depth + 1, nesting - 1)
            if self.random.random() < 0.6:
                self.line(depth, self.choose(["else:", f"elif {self.condition(2)}:"]))
                self.block(depth + 1, nesting - 1)
        else:
            self.loop(depth, nesting, shape == 8)

    def block(self, depth, nesting):
        for _ in range(self.random.randrange(1, 4)):
            self.statement(depth, nesting)

    def loop(self, depth, nesting, counted):
        """Every thread has its own number of rounds, and leaves or skips the rest of them when it likes."""
        self.loops += 1
        self.count += 1
        if counted:
            self.line(depth, f"for k{self.count} in range({self.expression('i32', 1)} & {self.choose([3, 7, 15])}):")
            self.line(depth + 1, f"i32_0 = i32(i32_0 + k{self.count})")
        else:
            self.line(depth, f"k{self.count} = i32(0)")
            self.line(depth, f"while {self.condition(1)} and k{self.count} < {self.choose([2, 5, 9])}:")
            self.line(depth + 1, f"k{self.count} = i32(k{self.count} + 1)")
        self.block(depth + 1, nesting - 1)
        if self.random.random() < 0.6:
            self.line(depth + 1, f"if {self.condition(1)}:")
            self.line(depth + 2, self.choose(["break", "continue"]))
            self.block(depth + 1, nesting - 1)
        self.loops -= 1

    # ---- expressions ---------------------------------------------------------------------------------------------

    def condition(self, depth):
        shape = self.random.randrange(6)
        if depth and shape == 0:
            return f"({self.condition(depth - 1)} {self.choose(['and', 'or'])} {self.condition(depth - 1)})"
        if depth and shape == 1:
            return f"(not {self.condition(depth - 1)})"
        kind = self.choose([*self.variables])
        return f"({self.expression(kind, depth - 1)} {self.choose(COMPARISONS)} {self.expression(kind, depth - 1)})"

    def leaf(self, kind):
        if self.random.random() < 0.7:
            return self.choose(self.variables[kind])
        if kind in FLOATS:
            return f"{kind}({self.choose(['0.5', '-2.75', '1e10', '1e-40', '-0.0', 'INFINITY', 'NAN'])})"
        if kind == "u32" and self.random.random() < 0.5:
            return f"table[{self.choose(self.variables['i32'])} & 7]"
        bits = int(kind[1:]) - (kind[0] == "i")
        number = self.choose([0, 1, 2, 3, 7, 31, 255, 65535, 2 ** (bits - 1), self.random.getrandbits(bits)])
        return f"{kind}({number % min(2**bits, 2**63)})"

    def expression(self, kind, depth):
        if depth <= 0 or self.random.random() < 0.15:
            return self.leaf(kind)
        return (self.floating if kind in FLOATS else self.whole)(kind, lambda: self.expression(kind, depth - 1), depth)

    def either(self, kind, part, depth):
        """A part or another, or one of another kind converted."""
        if self.random.random() < 0.5:
            return f"({part()} if {self.condition(depth - 1)} else {part()})"
        other = self.choose([other for other in self.variables if other != kind])
        if kind in FLOATS or other in WHOLE:
            return f"{kind}({self.expression(other, depth - 1)})"
        x, limit = self.choose(self.variables[other]), LIMITS[kind]
        low = -limit if kind[0] == "i" else 0.0
        return f"({kind}({x}) if {x} > {other}({low}) and {x} < {other}({limit}) else {part()})"

    def whole(self, kind, part, depth):
        bits, wide = int(kind[1:]), "u64" if kind == "i64" else kind
        shape = self.random.randrange(9)
        if shape < 2:
            return f"{kind}({wide}({part()}) {self.choose('+-*')} {wide}({part()}))"
        if shape == 2:
            return f"{kind}({part()} {self.choose('&|^')} {part()})"
        if shape == 3:
            return f"{kind}({wide}({part()}) << {wide}({part()} & {kind}({bits - 1})))"
        if shape == 4:
            return f"{kind}({part()} >> {kind}({part()} & {kind}({bits - 1})))"
        if shape == 5:
            divisor = f"{kind}({part()} & {kind}(255)) + {kind}(1)"  # never 0, nor -1 for the smallest number
            return f"{kind}({part()} {self.choose(['//', '%'])} {kind}({divisor if bits == 64 else part() + ' | 1'}))"
        if shape == 6:
            return f"{kind}({self.choose(['min', 'max'])}({part()}, {part()}))"
        if shape == 7 and kind != "i64":
            return f"{kind}({self.choose('-~')}{part()})"
        return self.either(kind, part, depth)

    def floating(self, kind, part, depth):
        shape = self.random.randrange(8)
        if shape < 4:
            return f"{kind}({part()} {self.choose('*/' if self.products else '+-')} {part()})"
        if shape == 4:
            return f"{kind}({self.choose(['math.sqrt', 'math.fabs', 'abs', '-'])}({part()}))"
        if shape == 5:
            return f"{kind}(math.copysign({part()}, {kind}({self.expression('i32', depth - 1)})))"
        return self.either(kind, part, depth)


# ---- two machines ------------------------------------------------------------------------------------------------


def compiled(text, signature, name, threads=128, lowest="sm_75", **more):
    """The kernel that a text defines; more: what it may use besides the words of kernels."""
    space = {word: getattr(words, word) for word in words.__all__} | {
        "math": math,
        "INFINITY": math.inf,
        "NAN": math.nan,
    }
    exec(text, space | more, defined := {})
    (function,) = defined.values()
    return Kernel(function, signature, name, threads, None, lowest, ())


def ptx_of(kernel, architecture):
    """PTX of a kernel for an architecture; nothing keeps it."""
    types = [kind for _, kind in kernel.parameters]
    return compiler.to_ptx(kernel.name, kernel.function, types, kernel.bounds, architecture)


def _wrapping(kind):
    bits = int(kind[1:])
    low = -(1 << bits - 1) if kind[0] == "i" else 0
    return lambda x: (int(x) - low) % (1 << bits) + low


def _rounding(dtype):
    """Python would round whole numbers to float64 first."""
    return lambda x: dtype((np.uint64 if x >> 63 == 1 else np.int64)(x) if isinstance(x, int) else x)


def by_python(text, inputs, outputs, n):
    """What the program writes into arrays of n elements, thread by thread."""
    thread = SimpleNamespace(x=0)
    zero, local = SimpleNamespace(x=0), SimpleNamespace(array=lambda size, kind: [None] * size)
    space = {
        "cuda": SimpleNamespace(blockIdx=zero, blockDim=zero, threadIdx=thread, local=local),
        "math": SimpleNamespace(sqrt=np.sqrt, fabs=np.abs, copysign=np.copysign),
        "INFINITY": math.inf,
        "NAN": math.nan,
        **{kind: _wrapping(kind) for kind in DTYPES if kind not in FLOATS},
        **{kind: _rounding(DTYPES[kind]) for kind in FLOATS},
    }
    exec(text, space)
    arrays = [list(array) if array.dtype.kind == "f" else array.tolist() for array in inputs]
    written = [[None] * n for _ in outputs]
    with np.errstate(all="ignore"):
        for thread.x in range(n):
            space["program"](*arrays, *written, n)
    return [np.array(values, DTYPES[kind]) for values, (_, kind) in zip(written, outputs, strict=True)]


def values(kind, n, generator):
    """Numbers of all sizes, and those where kinds end."""
    dtype = DTYPES[kind]
    often = generator.random(n) < 0.35
    if kind in FLOATS:
        with np.errstate(over="ignore", under="ignore"):
            x = (generator.standard_normal(n) * 10.0 ** generator.integers(-8, 9, n)).astype(dtype)
            return np.where(often, generator.choice(np.array(SPECIAL).astype(dtype), n), x)
    limits, bits = np.iinfo(dtype), 8 * np.dtype(dtype).itemsize
    x = generator.integers(limits.min, limits.max, n, dtype, endpoint=True) >> generator.integers(0, bits, n).astype(
        dtype
    )
    ends = np.array([0, 1, 2, 3, 31, 63, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype)
    return np.where(often, generator.choice(ends, n), x)
