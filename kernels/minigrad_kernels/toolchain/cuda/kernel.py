"""What a CUDA kernel is: a Python function, a C-like signature, and the promises that its tests hold it to.

    @kernel("f32[:,:] x, f32[:,:] out", threads=256)
    def transpose(x, out):
        i = cuda.grid(1)
        if i < x.size:
            row, column = i // x.shape[1], i % x.shape[1]
            out[column, row] = x[row, column]

    transpose((blocks,), (256,), (x, out))

Arrays of CuPy run on the GPU; arrays of the interpreter run the same compiled code in NumPy. `f32[:,:]` is an array of
two axes as `numba.cuda` knows it, with a shape and any strides: such a kernel also runs in Numba's own simulator.
`f32*` is a pointer, for kernels whose every instruction counts. It has no shape: what is not an argument, such a kernel
does not know.
"""

import functools
import inspect
import math
import re
import threading
import time
from importlib import import_module
from pathlib import Path

import numpy as np

from ...errors import KindError, ShapeError, StateError
from ..watch import launched, watchers
from . import cache, compiler
from .intrinsics import SIMULATOR, cuda
from .keys import key_of
from .memory import View

# Turing, Ampere (data centre, others), Ada, Hopper, Blackwell (data centre, others)
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
SPECIFIC = ("sm_90a",)  # with instructions that no other architecture has, newer ones neither
KERNELS: "dict[str, Kernel]" = {}  # every kernel that was ever declared, by name
FILE = re.compile(r"(\.file\s+\d+ ).*")  # of PTX: the name of the source
PACKAGES = Path(__file__).parents[3]  # the folder in which the package lies
TYPE = re.compile(r"(f16|f32|f64|i8|u8|i16|u16|i32|u32|i64|u64)(\*|\[:(,:)*\])?")


def _parameters(name, signature):
    """((name, type), ...) from "f32[:,:] x, i32 n"."""
    found = tuple(tuple(reversed(part.split())) for part in re.split(",(?!:)", signature))
    for part in found:
        if len(part) != 2 or not TYPE.fullmatch(part[1]):
            raise KindError(
                f"{name}: the signature {signature!r} has {part!r}, wants parts such as 'f32[:,:] x' or 'i32 n'"
            )
    return found


def _flat(signature):
    """The parameters of the compiled code: for an array, the fields of Numba's record of it."""
    for name, kind in signature:
        element, *axes = re.split(r"[\[,]", kind)
        if axes:
            yield from ((f"{name}.meminfo", "u64"), (f"{name}.parent", "u64"))  # always 0: they are of Numba's memory
            yield from ((f"{name}.size", "i64"), (f"{name}.itemsize", "i64"), (name, f"{element}*"))
            yield from ((f"{name}.{field}{i}", "i64") for field in ("shape", "strides") for i in range(len(axes)))
        else:
            yield name, kind


def _escaped(text):
    """A text between quotes of PTX, which is ASCII: other bytes, quotes and backslashes as three octal digits."""
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in text.encode())


class Kernel:
    """One kernel: its function, its parameters, and its compiled forms, which are made when first needed.

    name           unique; what the PTX and the GPU's tools call it
    signature      ((name, type), ...)
    parameters     the same of the compiled code, where each array is its address, sizes and strides
    threads        the most threads that a block of it may have
    architectures  those that it is compiled for
    opcodes        prefixes of machine instructions that its code must contain
    """

    def __init__(self, function, signature, name, threads, blocks, lowest, opcodes):
        self.function, self.name, self.threads, self.opcodes = function, name, threads, tuple(opcodes)
        self.signature = _parameters(name, signature)
        self.parameters = tuple(_flat(self.signature))
        self._axes = [kind.count(":") for _, kind in self.signature]
        self._itemsizes = [int(re.search("[0-9]+", kind)[0]) // 8 for _, kind in self.signature]
        self._has_arrays = any(self._axes)
        self.bounds = (threads, blocks) if blocks else threads
        self.architectures = (lowest,) if lowest in SPECIFIC else ARCHITECTURES[ARCHITECTURES.index(lowest) :]
        self.declared = time.time()
        self._lock = threading.RLock()
        self._binaries: dict[str, compiler.Binary] = {}
        functools.update_wrapper(self, function)

    def __repr__(self):
        return f"<kernel {self.name}({', '.join(f'{kind} {name}' for name, kind in self.signature)})>"

    # ---- compiled forms ------------------------------------------------------------------------------------------

    @functools.cached_property
    def key(self):
        """A hash of all that the compiled code depends on but the tools that compile."""
        return key_of(self.function, (self.name, self.parameters, self.bounds, self.architectures[0]), self.declared)

    @functools.cached_property
    def kept(self):
        """PTX for the oldest architecture, as it is kept: from an archive, the user's cache, or the compiler.

        It names no file, so that a wheel and a cache may be moved to other folders.
        """
        found = cache.load_ptx(self.name, self.key)
        if found is None:
            types = [kind for _, kind in self.signature]
            text = compiler.to_ptx(self.name, self.function, types, self.bounds, self.architectures[0])
            found = FILE.sub(r'\1""', text)
            cache.save_ptx(self.name, self.key, found)
        return found

    @functools.cached_property
    def _ptx(self):
        file = Path(self.function.__code__.co_filename)
        shown = file.relative_to(PACKAGES) if file.is_relative_to(PACKAGES) else file
        return FILE.sub(lambda match: f'{match[1]}"{_escaped(shown.as_posix())}"', self.kept)

    def ptx(self):
        """PTX, for the oldest architecture and all newer ones.

        Errors  RuntimeError if it has to be compiled and there is no compiler
        """
        with self._lock:
            return self._ptx

    def binary(self, architecture):
        """The machine code for an architecture, from the user's cache or from the linker.

        Errors  RuntimeError if it is not kept and there is no compiler; ValueError for other architectures
        """
        if architecture not in self.architectures:
            raise ShapeError(f"{self.name}: got {architecture}, wants one of {', '.join(self.architectures)}")
        with self._lock:
            if architecture not in self._binaries:
                found = cache.load_code(self.name, architecture, self.kept)
                if found is None:
                    found = compiler.link(self.name, self._ptx, architecture)
                    cache.save_code(self.name, architecture, self.kept, found)
                self._binaries[architecture] = found
            return self._binaries[architecture]

    # ---- running -------------------------------------------------------------------------------------------------

    def __call__(self, grid, block, arguments, shared=0):
        """Start the kernel on CuPy's current stream, or interpret it at once: the first argument, an array, decides.

        Shapes  grid, block: tuples of one to three sizes; arguments: one for each part of the signature, arrays or
                addresses for pointers, arrays, Views or None (no elements) for arrays, numbers for the rest; shared:
                bytes of dynamic shared memory
        Errors  ValueError for blocks of more than `threads` threads, TypeError for arguments of another kind,
                RuntimeError if interpreting finds a fault, or there is no driver, or the GPU is too old
        """
        if watchers():
            launched(self, self, grid, block, arguments, shared)
        elif arguments and isinstance(getattr(arguments[0], "array", arguments[0]), np.ndarray):
            self._interpret(grid, block, arguments, shared)
        else:
            self._launch(grid, block, arguments, shared)

    def flat(self, arguments):
        """An argument for each of `parameters`; those that already are such stay as they are.

        Errors  TypeError for what is no array of as many axes as the signature says
        """
        if not self._has_arrays or len(arguments) != len(self.signature):
            return arguments
        found = []
        for argument, (name, kind), axes, itemsize in zip(
            arguments, self.signature, self._axes, self._itemsizes, strict=True
        ):
            if not axes:
                found.append(argument)
            elif argument is None:
                found += [0] * (5 + 2 * axes)
            elif len(shape := getattr(argument, "shape", ())) != axes:
                shown = f"an array of {len(shape)} axes" if shape else repr(argument)[:80]
                raise KindError(f"{self.name}: {name} is {shown}, wants {kind}")
            else:
                array = argument.array if type(argument) is View else argument
                found += 0, 0, math.prod(shape), itemsize, array, *shape, *argument.strides
        return found

    def _interpret(self, grid, block, arguments, shared):
        from ...interpreter import interpret

        report = interpret(self, grid, block, arguments, shared)
        if report.faults:
            found = "\n".join(str(fault) for fault in report.faults)
            raise StateError(f"{self.name}: the interpreter found {len(report.faults)} faults\n{found}")

    @functools.cached_property
    def _launch(self):
        try:
            from .launch import Launcher
        except ImportError as error:
            advice = 'pip install -e ".[cuda13]" (or [cuda12])'
            raise StateError(f"{self.name}: CuPy is not installed; {advice}") from error
        return Launcher(self)


def _check(name, function, signature, lowest):
    """Refuse what could not be compiled, and a second kernel of a name unless it is a new version of the function."""
    wanted, there = [part for part, _ in _parameters(name, signature)], list(inspect.signature(function).parameters)
    if lowest not in (*ARCHITECTURES, *SPECIFIC):
        raise ShapeError(f"{name}: lowest is {lowest!r}, wants one of {', '.join((*ARCHITECTURES, *SPECIFIC))}")
    if not _parameters(name, signature)[0][1].endswith(("*", "]")):
        raise KindError(f"{name}: the first parameter is no array: its memory decides where the kernel runs")
    if wanted != there:
        raise KindError(f"{name}: the function takes {', '.join(there)}, the signature has {', '.join(wanted)}")
    if name in KERNELS:
        before = KERNELS[name].function
        origin = lambda f: (f.__module__, f.__qualname__)
        if origin(before) != origin(function) or before.__code__ is function.__code__:
            raise StateError(f"kernel: there already is one called {name}; give the function or variant another name")


def kernel(signature, *, threads, blocks=None, lowest="sm_75", opcodes=(), variant=""):
    """Declare a function to be a CUDA kernel.

    signature  a type and a name for each parameter: "f32[:,:] x, f32* out, i32 n"
    threads    the most threads in a block
    blocks     how many blocks one multiprocessor should hold at once; limits the registers
    lowest     the oldest architecture that has all its instructions; "sm_90a": that one alone
    opcodes    prefixes of machine instructions that the compiled code must contain, such as "LDG.E.128"
    variant    added to the name, where a function around it makes several kernels
    A function that is declared anew, as by running a cell of a notebook again, takes the place of the older one.
    In Numba's simulator (NUMBA_ENABLE_CUDASIM=1) the function becomes a kernel of `numba.cuda`, for NumPy arrays.
    Errors  TypeError for a signature that cannot be read or is not that of the function, ValueError for an
            architecture that cannot be, RuntimeError for a name that is taken
    """

    def declare(function):
        if SIMULATOR:
            return cuda.jit(function)
        module = function.__module__.split(".")
        family = module[-2] if len(module) > 1 else module[-1]
        name = "_".join(filter(None, (family, function.__name__, variant)))
        _check(name, function, signature, lowest)
        KERNELS[name] = Kernel(function, signature, name, threads, blocks, lowest, opcodes)
        return KERNELS[name]

    return declare


def each_float(signature, *, variant="", kinds=("f32", "f64"), **options):
    """Declare a function to be the kernels of float32 and of float64, by the bytes of an element.

    signature, variant, options: as of `kernel`; `_` is the type of elements
    """
    return lambda function: {
        int(kind[1:]) // 8: kernel(
            re.sub(r"\b_\b", kind, signature), variant="_".join(filter(None, (variant, kind))), **options
        )(function)
        for kind in kinds
    }


def all_kernels():
    """Every kernel of the package, by name: those of all modules of its families whose names begin with cuda."""
    package = __name__.partition(".")[0]
    for file in sorted(Path(__file__).parents[2].glob("*/cuda*.py")):
        import_module(f"{package}.{file.parent.name}.{file.stem}")
    names = sorted(name for name, found in KERNELS.items() if found.function.__module__.startswith(package + "."))
    return [KERNELS[name] for name in names]
