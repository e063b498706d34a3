"""Compiles kernels for the CPU through Numba, and makes machine code of each piece of code once.

Numba by itself makes machine code of every function that another one calls, and then again of the caller with a copy
inside. A kernel calls dozens of small functions, so most of that would be thrown away. Here a function that kernels
call is a part: it is typed and lowered once, but optimised and made machine code only inside the entries that it is
linked into. An entry is what Python calls, and the only thing that is kept on disk. Without this, the first step of a
network takes twice as long.

Parts and entries are dispatchers of Numba with a compiler of their own, which Numba documents (CompilerBase). The work
of a shared kernel goes to Numba's pool of threads, which Numba hands only to its own parallel loops: their compilation
takes twice as long and gives nothing that one thread can run. So the few instructions that hand a function to the pool
are emitted here. The address of the pool's function is an argument, 0 for no team: compiled code holds no address, and
none is looked up by a process that needs one thread.

These internals are used beside it, as they are in the versions of NUMBA, from 0.62 on:

    JITCodeLibrary      _final_module, _finalized, _linking_libraries, _get_module_for_linking, _optimize_final_module
    JITCPUCodegen       _module_pass_manager, which gives a pair since 0.62
    CPUDispatcher       _cache, add_overload, overloads
    CompileResult       _reduce, _rebuild, as Numba's own cache uses them
    llvmlite            ffi.lib._lock, around each call of LLVM
    flags, contexts     no_compile, no_cpython_wrapper, enable_nrt, cached_internal_func, refresh, insert_user_function
    numba_parallel_for  the pool's function: a symbol, and its eight arguments
    np.arrayobj         make_array, populate_array: the record of an array, in emit.py and memory.py
    np.ufunc.parallel   _get_num_threads and _set_num_threads, faster than the public ones

cpu.py refuses other versions.
"""

import functools
import inspect
import os

import llvmlite.binding
import numba
from llvmlite import ir
from llvmlite.binding import ffi
from numba.core import cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.errors import NumbaRuntimeError
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NoPythonSupportedFeatureValidation
from numba.extending import intrinsic

from ..errors import KindError
from . import cache, progress

# No fast-math flag, not even contract: whether x*y + z is rounded once would follow from whether the compiler chose
# vectors at that place, and so from the layout and the number of threads. The microkernels say contract themselves.
OPTIONS = dict(nopython=True, error_model="numpy", nogil=True, no_cfunc_wrapper=True)
WRAPPER = "_ZN7cpython"  # how the functions that Python calls begin
LARGE = 1050  # instructions before optimisation, of which about a quarter remains
RUNTIME, ALLOCATION = "NRT_", "NRT_MemInfo_alloc"  # how functions of Numba's runtime begin

_internal: dict = {}  # what Numba compiles for itself, here without references: others must not get it


def _before_fork():
    """Wait for what is being compiled, or freed: a child could never take a lock that a thread of its parent holds."""
    global_compiler_lock.acquire()
    ffi.lib._lock.__enter__()


def _after_fork():
    ffi.lib._lock.__exit__()
    global_compiler_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class _Library(JITCodeLibrary):
    """Code in which large functions stay functions.

    A call costs them nothing. Inside their callers they would double the time that LLVM takes.
    """

    def add_ir_module(self, ir_module):
        for function in ir_module.functions:
            if function.name.startswith(WRAPPER):  # called once from Python: not worth LLVM's time
                for attribute in ("noinline", "optnone"):
                    function.attributes.add(attribute)
            elif sum(len(block.instructions) for block in function.blocks) > LARGE:
                function.attributes.discard("alwaysinline")
                function.attributes.add("noinline")
        super().add_ir_module(ir_module)

    def add_llvm_module(self, ll_module):
        self._final_module.link_in(ll_module)


class _PartLibrary(_Library):
    """Code to be linked into entries; it never becomes machine code by itself."""

    def finalize(self):
        self._raise_if_finalized()
        self._finalized = True  # without what it calls, which entries link but once


def _called(library):
    """The libraries of all that the code in a library calls, in a fixed order."""
    found = list(dict.fromkeys(library._linking_libraries))
    for called in found:  # which grows meanwhile
        if isinstance(called, _PartLibrary):
            found += [other for other in dict.fromkeys(called._linking_libraries) if other not in found]
    return found


class _EntryLibrary(_Library):
    """Machine code for Python to call, optimised once with all its parts inside."""

    def finalize(self):
        for library in _called(self):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._linking_libraries = []
        super().finalize()

    def _optimize_final_module(self):
        for function in self._final_module.functions:
            if not (function.is_declaration or function.name.startswith(WRAPPER)):
                function.linkage = "internal"  # nobody else calls it, so numbers that all calls give are constants
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)
        if any(function.name.startswith(ALLOCATION) for function in self._final_module.functions):
            raise NumbaRuntimeError("an array that nobody would free")


@register_pass(mutates_CFG=False, analysis_only=True)
class _ForgetReferences(AnalysisPass):
    """Nothing counts references to arrays from here on: callers hold them all."""

    _name = "minigrad_forget_references"

    def __init__(self):
        super().__init__()

    def run_pass(self, state):
        state.targetctx = state.targetctx.subtarget(
            enable_nrt=False,
            cached_internal_func=_internal,
            refresh=lambda: None,  # else it looks for more functions at each that it does not find
        )
        return False


class _Compiler(CompilerBase):
    """Numba's compiler with one of our libraries."""

    library: type

    def define_pipelines(self):
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        passes = DefaultPassBuilder.define_nopython_pipeline(state)
        passes.add_pass_after(_ForgetReferences, NoPythonSupportedFeatureValidation)
        passes.finalize()
        return [passes]

    def compile_extra(self, function):
        try:
            return super().compile_extra(function)
        except NumbaRuntimeError as error:
            name = progress.name_of(function)
            hint = "wanted one that the caller gives, and loops instead of copies between slices"
            raise KindError(f"{name}: kernels allocate no arrays; {hint}") from error


class _EntryCompiler(_Compiler):
    library = _EntryLibrary

    def compile_extra(self, function):
        with progress.compiling(function), progress.no_collection():
            return super().compile_extra(function)


class _PartCompiler(_Compiler):
    library = _PartLibrary

    def define_pipelines(self):
        self.state.flags.no_compile = self.state.flags.no_cpython_wrapper = True
        return super().define_pipelines()


class Part(CPUDispatcher):
    """Numba's dispatcher for a function that kernels call; Python cannot.

    A number that is written where the function is called makes no type of its own: each would be compiled again.
    """

    def __init__(self, function):
        super().__init__(function, targetoptions=dict(OPTIONS), pipeline_class=_PartCompiler)

    def get_call_template(self, args, kws):
        return super().get_call_template([types.unliteral(kind) for kind in args], kws)

    def add_overload(self, result):
        """Under a key by which Numba finds the code when it lowers a call; nobody calls the key."""
        key = object()
        self.targetctx.insert_user_function(key, result.fndesc, [result.library])
        self.overloads[tuple(result.signature.args)] = result._replace(entry_point=key)


class Entry(CPUDispatcher):
    """Numba's dispatcher for a function that Python calls; `stats` counts what is loaded and what is compiled."""

    def __init__(self, function, kept_as=None):
        super().__init__(function, targetoptions=dict(OPTIONS), pipeline_class=_EntryCompiler)
        self._cache = _Cache(kept_as or function)


class _Cache:
    """Stands where a dispatcher of Numba has its cache, which would fill Numba's tables before it loads anything."""

    cache_path = None

    def __init__(self, function):
        self.function = function

    def load_overload(self, signature, context):
        runtime, *kept = cache.load(self.function, signature) or [False]
        if runtime:
            context.refresh()
        return CompileResult._rebuild(context, *kept) if kept else None

    def save_overload(self, signature, result):
        if not result.library.has_dynamic_globals:  # addresses of this process
            runtime = any(function.name.startswith(RUNTIME) for function in result.library._final_module.functions)
            cache.save(self.function, signature, (runtime, *result._reduce()))


# ---- shared kernels: what lies between Python and the shares of the work -----------------------------------------


@functools.cache
def pool():
    """Numba's pool of threads, started by the first call: (the address of its function, how many take part, set that).

    The functions are the ones below numba.get_num_threads and numba.set_num_threads, without a look at two locks each
    time.
    """
    numba.get_num_threads()
    from numba.np.ufunc import parallel

    door = llvmlite.binding.address_of_symbol("numba_parallel_for")
    return door, parallel._get_num_threads, parallel._set_num_threads


def entry_of(function):
    """The entry (door, threads, shares, arguments of the kernel) of a shared kernel.

    It is called for every share (number, shares) of the work: by threads of the pool, whose function lies at `door`,
    or one after another where that is 0.
    """
    names = ", ".join(list(inspect.signature(function).parameters)[1:])
    known = {"__name__": function.__module__, "_body": Part(function), "_spread": _spread}
    own = "_door, _threads, _shares"
    exec(f"def entry({own}, {names}):\n    _spread(_body, {own}, ({names},))\n", known)
    known["entry"].__qualname__ = known["entry"].__name__ = function.__name__
    return Entry(known["entry"], kept_as=function)


@intrinsic
def _spread(typing_context, body, door, threads, shares, arguments):
    team = types.UniTuple(types.intp, 2)
    call = body.get_call_type(typing_context, (team, *arguments.types), {})
    if call.return_type != types.none:
        return None
    kernel = body.dispatcher.overloads[call.args]

    def generate(context, builder, signature, values):
        context.active_code_library.add_linking_library(kernel.library)
        _, door, threads, shares, arguments = values
        work = cgutils.pack_struct(builder, [shares, arguments])
        callback = _callback(context, builder, kernel, call, work.type)
        _call(context, builder, callback, (door, threads, shares), work)
        return context.get_dummy_value()

    return types.none(body, types.intp, types.intp, types.intp, arguments), generate


BYTES = ir.IntType(8).as_pointer()


def _callback(context, builder, kernel, call, work_type):
    """A function for the pool, f(places, counts, steps, work): does the shares from the number that it finds on.

    The pool steps through arrays that it is given for each share; the only one here has elements of one byte and
    begins where the work does, so its place says which share it is.
    """
    number = context.get_value_type(types.intp)
    kind = ir.FunctionType(ir.VoidType(), [BYTES.as_pointer(), number.as_pointer(), number.as_pointer(), BYTES])
    function = ir.Function(builder.module, kind, name=f"{builder.function.name}.shares")
    function.linkage = "internal"
    places, counts, _, work = function.args
    inside = ir.IRBuilder(function.append_basic_block())
    first = inside.sub(inside.ptrtoint(inside.load(places), number), inside.ptrtoint(work, number))
    whole = inside.load(inside.bitcast(work, work_type.as_pointer()))
    shares, arguments = (inside.extract_value(whole, index) for index in range(2))
    arguments = [inside.extract_value(arguments, index) for index in range(len(call.args) - 1)]
    body = context.declare_function(builder.module, kernel.fndesc)
    with cgutils.for_range(inside, inside.load(counts), intp=number) as loop:
        team = cgutils.pack_array(inside, [inside.add(first, loop.index), shares])
        # Kernels raise nothing, so there is no status to look at.
        context.call_conv.call_function(inside, body, call.return_type, call.args, [team, *arguments])
    inside.ret_void()
    return function


def _call(context, builder, callback, settings, work):
    door, threads, shares = settings
    number = context.get_value_type(types.intp)

    def place_of(value):
        place = cgutils.alloca_once_value(builder, value)
        return place, builder.bitcast(place, BYTES)

    _, work = place_of(work)
    (places, any_places), (counts, any_counts), (steps, any_steps) = map(place_of, (work, shares, number(1)))
    with builder.if_else(builder.icmp_signed("==", door, number(0))) as (alone, together):
        with alone:
            builder.call(callback, [places, counts, steps, work], attrs=("noinline",))
        with together:
            kind = ir.FunctionType(ir.VoidType(), [BYTES] * 5 + [number] * 3)
            pool = builder.inttoptr(door, kind.as_pointer())
            function = builder.bitcast(callback, BYTES)
            dimensions, arrays = number(0), number(1)
            builder.call(pool, [function, any_places, any_counts, any_steps, work, dimensions, arrays, threads])
