"""From a Python function to machine code: Numba, libnvvm (PTX), nvJitLink (cubin). No GPU is needed.

Numba's IR is the same for every architecture, so a kernel passes the front end once. On the way to libnvvm the IR gets
what it lacks for code as good as CUDA C's: pointers that do not overlap (`restrict`), marks of loops (`unroll_loops`),
and the kernel's own name (`rename`). `cuda.jit` and `cuda.compile` have none of these, and a launch by `cuda.jit`
costs ten times as much.

These internals of numba-cuda are used for that. It is frozen, and they are the same from 0.24 to 0.30:

    compiler            _compile_pyfunc_with_fixup, since 0.21: the module before libnvvm sees it
    library             _entry_name, get_function, modules
    cudadrv.nvvm        CompilationUnit, LibDevice, llvm_replace: libnvvm, which has a public face of its own in
                        cuda.bindings, but not the text that it reads

Without one of them a kernel that is not kept cannot be compiled: the ImportError or AttributeError says which one. What
is kept, by the user's cache or an archive, runs all the same.
"""

import functools
import linecache
import os
import platform
import re
import threading
from typing import NamedTuple

import numpy
from llvmlite import ir
from llvmlite.ir import values

from ...errors import StateError
from ..progress import no_collection
from .intrinsics import UNROLL

__all__ = ["INSTALL", "Binary", "NoCompilerError", "compiler_versions", "link", "missing", "to_ptx"]

INSTALL = 'pip install -e ".[compile]" (no GPU needed), or [cuda13] or [cuda12] where there is one'
# Of the language of PTX: what the drivers and linkers of all of CUDA 12 read, and enough for sm_75 to sm_90. libnvvm
# writes its own version whatever the instructions need.
PTX_VERSION = "7.8"
FRONT_END = (7, 5)  # an architecture for Numba, whose IR does not depend on it
_compiling = threading.RLock()  # Numba's front end and libnvvm are no places for two threads


class NoCompilerError(StateError):
    """A kernel has to be compiled, and nothing here can."""


class Binary(NamedTuple):
    """Machine code for one architecture, and what a launch of it takes."""

    image: bytes
    registers: int  # per thread
    shared: int  # bytes per block, without dynamic shared memory
    stack: int  # bytes per thread
    spills: int  # bytes stored and loaded again because registers ran out


@functools.cache
def missing():
    """What the compiler lacks here, in words; None if nothing."""
    try:
        import numba_cuda  # noqa: F401
    except ImportError:
        return "the package numba-cuda is not installed"
    if not hasattr(numpy, "row_stack"):  # gone in 2.5, and numba-cuda is frozen
        return f"numba-cuda wants a numpy below 2.5, here is {numpy.__version__}"
    try:
        compiler_versions()
    except Exception as error:  # each library has errors of its own
        return f"a part of the CUDA compiler cannot be loaded: {' '.join(str(error).split())}"
    return None


@functools.cache
def compiler_versions():
    """The versions of everything that shapes PTX, and of what makes machine code of it."""
    import llvmlite
    import numba
    import numba_cuda
    from cuda.bindings import nvjitlink, nvvm

    tools = [f"{tool.__name__} {tool.__version__}" for tool in (numba, numba_cuda, llvmlite)]
    tools += [f"python {platform.python_version()}", f"nvvm {nvvm.version()}", _build("nvvm"), _build("nvrtc")]
    return " ".join(tools), f"nvjitlink {nvjitlink.version()} {_build('nvJitLink')}"


def _build(library):
    """What tells builds of a library apart: libnvvm 12.9 and 13.0 give the same version."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    file = os.stat(load_nvidia_dynamic_lib(library).abs_path)
    return f"{library} {file.st_size} {file.st_mtime_ns}"


def _serial(function):
    @functools.wraps(function)
    def alone(name, *arguments):
        if missing():
            raise NoCompilerError(
                f"{name}: there is no CUDA compiler, {missing()}; {INSTALL}; or set MINIGRAD_PTX to a wheel with PTX"
            )
        with _compiling:
            return function(name, *arguments)

    return alone


def _numba_type(text):
    from numba.cuda import types

    kinds = {"f": "float", "i": "int", "u": "uint"}
    element, *axes = re.split(r"[*\[,]", text)
    kind = getattr(types, kinds[element[0]] + element[1:])
    if text.endswith("*"):
        return types.CPointer(kind)
    return types.Array(kind, len(axes), "A") if axes else kind


@_serial
def to_ptx(name, function, types, bounds, architecture):
    """PTX text of a kernel for an architecture such as "sm_90".

    types: of its parameters; bounds: the most threads of a block, or these and how many blocks to hold at once
    """
    from cuda.bindings.nvvm import nvvmError
    from numba.cuda import types as kinds
    from numba.cuda.compiler import _compile_pyfunc_with_fixup
    from numba.cuda.cudadrv.nvvm import CompilationUnit, LibDevice, llvm_replace

    signature = kinds.void(*(_numba_type(text) for text in types))
    lines = bool(linecache.getlines(function.__code__.co_filename))  # none for what was typed at a prompt
    options = dict(device=False, abi="numba", cc=FRONT_END, lineinfo=lines, launch_bounds=bounds)
    try:
        with no_collection():
            library, _ = _compile_pyfunc_with_fixup(function, signature, **options)
    except Exception as error:  # of typing, of lowering, of bytecode: they have no base in common
        raise StateError(f"{name}: Numba refuses it: {error}") from error
    entry = library._entry_name
    restrict(library.get_function(entry))
    unit = CompilationUnit({"arch": architecture.replace("sm_", "compute_"), "opt": 3})
    for module in library.modules:
        unroll_loops(module)
        unit.add_module(llvm_replace(rename(str(module), entry, name)).encode())
    unit.lazy_add_module(LibDevice().get())
    try:
        text = _text(unit.compile())
    except nvvmError as error:
        raise StateError(f"{name}: libnvvm refuses it for {architecture}: {unit.get_log()}") from error
    old = architecture[-1].isdigit() and int(architecture.removeprefix("sm_")) <= 90
    return re.sub(r"^\.version .*$", f".version {PTX_VERSION}", text, count=1, flags=re.MULTILINE) if old else text


def _text(data):
    return bytes(data).decode().rstrip("\0").strip() + "\n"


# ---- what Numba's IR lacks ---------------------------------------------------------------------------------------


def restrict(function):
    """Promise that memory reached through one pointer argument is reached through no other."""
    for argument in function.args:
        if isinstance(argument.type, ir.PointerType):
            argument.add_attribute("noalias")


def unroll_loops(module):
    """Replace every unroll mark by metadata of the loop that it stands in, the one whose head is the nearest above.

    A mark is the first statement of a loop, so it follows its head, and blocks lie in the order of the source.
    """
    for function in module.functions:
        number = {block: k for k, block in enumerate(function.blocks)}
        ends = {}  # of the loops: the number of the head, and the last block that jumps back to it
        for block, k in number.items():
            heads = [number[to] for to in block.terminator.operands if isinstance(to, ir.Block)]
            ends |= {head: block for head in heads if head <= k}
        for block, k in number.items():
            for mark in [mark for mark in block.instructions if _callee(mark).startswith(UNROLL)]:
                head = max((head for head in ends if head <= k), default=None)
                if head is not None:  # else the front end itself has unrolled the loop
                    count = int(_callee(mark)[len(UNROLL) :])
                    ends[head].terminator.set_metadata("llvm.loop", _hint(module, count))
                block.instructions.remove(mark)
    for name in [name for name in module.globals if name.startswith(UNROLL)]:
        del module.globals[name]


def _callee(instruction):
    return getattr(getattr(instruction, "callee", None), "name", "")


def _hint(module, count):
    """Metadata of a loop. Its first operand is itself, which tells it from the metadata of all other loops."""
    name = {0: "llvm.loop.unroll.full", 1: "llvm.loop.unroll.disable"}.get(count, "llvm.loop.unroll.count")
    option = module.add_metadata([name] if count < 2 else [name, ir.IntType(32)(count)])
    hint = values.MDValue(module, (option,), name=str(len(module.metadata)))
    hint.operands = (hint, option)
    return hint


def rename(text, entry, name):
    """IR under the kernel's own name, without Numba's environment.

    The lines of the source stay, but not where its variables live: on those libnvvm 13.0 now and then loses a label.
    """
    text = text.replace(entry, name)
    return re.sub(r'^@"?_ZN08NumbaEnv.*\n|^.*call void @"llvm\.dbg\..*\n', "", text, flags=re.MULTILINE)


# ---- machine code ------------------------------------------------------------------------------------------------


@_serial
def link(name, ptx, architecture):
    """The Binary of PTX for an architecture."""
    from cuda.bindings import nvjitlink

    options = [f"-arch={architecture}", "-verbose", "-lineinfo", "-Xptxas=-v"]
    handle, data = nvjitlink.create(len(options), options), ptx.encode()
    try:
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), name)
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = bytearray(nvjitlink.get_error_log_size(handle))
            nvjitlink.get_error_log(handle, log)
            raise StateError(f"{name}: the assembler refuses it for {architecture}: {_text(log)}") from error
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    finally:
        nvjitlink.destroy(handle)
    return Binary(bytes(image), *_resources(name, _text(log)))


def _resources(name, log):
    """(registers, shared, stack, spills) from the assembler's report."""
    found = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    registers, shared = re.search(r"Used (\d+) registers", log), re.search(r"(\d+) bytes smem", log)
    if not found or not registers:
        raise StateError(f"{name}: the assembler reports no registers or spills; this version of it says: {log}")
    stack, stored, loaded = map(int, found.groups())
    return int(registers[1]), int(shared[1]) if shared else 0, stack, stored + loaded
