"""Compiles kernels for the CPU through Numba, each piece of code once.

Numba by itself makes machine code of every function that another one calls, and then again of the caller with a copy
inside. A kernel calls dozens of small functions, so most of that would be thrown away. Here a function that kernels
call is a part: typed and lowered once, but optimised and made machine code only inside the entries that it is linked
into. An entry is what Python calls, and the only thing that is kept on disk.

Numba's tables of types and functions fill in a third of a second, so an entry that lies on disk is loaded without them.
"""

import gc
import os
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

from numba.core import compiler, funcdesc, types, typing
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.errors import NumbaRuntimeError
from numba.core.lowering import Environment, Lower
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

from . import cache, claims, companion, progress
from .lowering import without_references
from .passes import Pipeline, count_references

__all__ = ["Entry", "Part", "no_collection"]

# No fast-math flag, not even contract: whether x*y + z is rounded once would follow from whether the compiler chose
# vectors at that place, and so from the layout and the number of threads. The microkernels say contract themselves.
OPTIONS = dict(nopython=True, error_model="numpy", nogil=True, no_cfunc_wrapper=True)
WRAPPER = "_ZN7cpython"  # how the functions that Python calls begin
LARGE = 1050  # instructions before optimisation, of which about a quarter remains
RUNTIME = "NRT_"  # how the functions of Numba's runtime begin

if hasattr(os, "register_at_fork"):
    # A fork waits for what is being compiled: its child could never take a lock that a thread of the parent holds.
    release = global_compiler_lock.release
    os.register_at_fork(before=global_compiler_lock.acquire, after_in_parent=release, after_in_child=release)


class _Library(JITCodeLibrary):
    """Code in which large functions stay functions.

    A call costs them nothing. Inside their callers they would double the time that LLVM takes.
    """

    def add_ir_module(self, ir_module):
        for function in ir_module.functions:
            if sum(len(block.instructions) for block in function.blocks) > LARGE:
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

    def alone(self):
        """The module to be linked into one that has all that this one calls."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self):
        """The module to be linked into code of Numba's."""
        whole = self.alone().clone()
        for library in _called(self):
            whole.link_in(_module_of(library), preserve=True)
        return whole


def _called(library):
    """The libraries of all that the code in a library calls, in a fixed order."""
    found = list(dict.fromkeys(library._linking_libraries))
    for called in found:  # which grows meanwhile
        if isinstance(called, _PartLibrary):
            found += [other for other in dict.fromkeys(called._linking_libraries) if other not in found]
    return found


def _module_of(library):
    return library.alone() if isinstance(library, _PartLibrary) else library._get_module_for_linking()


class _EntryLibrary(_Library):
    """Machine code for Python to call, optimised once with all its parts inside."""

    def finalize(self):
        for library in _called(self):
            self._final_module.link_in(_module_of(library), preserve=True)
        self._linking_libraries = []
        super().finalize()

    def _optimize_final_module(self):
        for function in self._final_module.functions:
            if function.name.startswith(WRAPPER):
                for attribute in ("noinline", "optnone"):  # which costs a call less than a microsecond
                    function.add_function_attribute(attribute)
            elif not function.is_declaration:
                function.linkage = "internal"  # nobody else calls it, so numbers that all calls give are constants
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


@register_pass(mutates_CFG=True, analysis_only=False)
class _EntryLowering(NativeLowering):
    """Numba's lowering."""

    _name = "minigrad_entry_lowering"

    def run_pass(self, state):
        with_references = state.targetctx
        state.targetctx = without_references(with_references)
        try:
            return super().run_pass(state)
        except NumbaRuntimeError:  # a copy between arrays that may overlap goes through memory of Numba's runtime
            state.library, state.targetctx = _library(_EntryLibrary, state), with_references
            count_references(state)
            return super().run_pass(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(LoweringPass):
    """Numba's lowering without what makes a function callable from outside."""

    _name = "minigrad_part_lowering"

    def __init__(self):
        LoweringPass.__init__(self)

    def run_pass(self, state):
        try:
            _lower(state, without_references(state.targetctx))
        except NumbaRuntimeError:  # as above
            state.library = _library(_PartLibrary, state)
            count_references(state)
            _lower(state, state.targetctx)
        return True


def _library(kind, state):
    library = kind(state.targetctx.codegen(), state.func_id.func_qualname)
    library.enable_object_caching()
    return library


def _lower(state, context):
    flags = state.flags
    description = funcdesc.PythonFunctionDescriptor.from_specialized_function(
        state.func_ir,
        state.typemap,
        state.return_type,
        state.calltypes,
        mangler=context.mangler,
        inline=flags.forceinline,
        noalias=flags.noalias,
        abi_tags=[flags.get_mangle_string()],
    )
    with context.push_code_library(state.library):
        lower = Lower(context, state.library, description, state.func_ir, metadata=state.metadata)
        lower.lower()

    def key():
        """Stands for the function in Numba's tables; nobody calls it."""

    context.insert_user_function(key, description, [state.library])
    state["cr"] = compiler._LowerResult(description, lower.call_helper, cfunc=key, env=lower.env)


class _EntryCompiler(compiler.CompilerBase):
    """Numba's compiler, ending in one of our libraries."""

    library_class, lowering = _EntryLibrary, _EntryLowering

    def define_pipelines(self):
        return [Pipeline(self.lowering, lambda: _library(self.library_class, self.state))]


class _PartCompiler(_EntryCompiler):
    library_class, lowering = _PartLibrary, _PartLowering


@contextmanager
def no_collection():
    """Numba makes millions of objects: to look through them again and again meanwhile costs a tenth."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.collect(1)  # once; what lives counts as old then
            gc.enable()


class Part(CPUDispatcher):
    """Numba's dispatcher for a function that kernels call; Python cannot.

    A number that is written where the function is called makes no type of its own: each would be compiled again.
    """

    def __init__(self, function):
        super().__init__(function, targetoptions=dict(OPTIONS), pipeline_class=_PartCompiler)

    def get_call_template(self, args, kws):
        return super().get_call_template([types.unliteral(kind) for kind in args], kws)

    def add_overload(self, result):
        self.overloads[tuple(result.signature.args)] = result  # and not into the table of what Python may call


class Entry(CPUDispatcher):
    """Numba's dispatcher for a function that Python calls. What is loaded and what is compiled is counted."""

    def __init__(self, function, kept_as=None):
        super().__init__(function, targetoptions=dict(OPTIONS), pipeline_class=_EntryCompiler)
        self.kept_as = kept_as or function
        self.loaded = self.compiled = 0

    def compile(self, signature):
        with global_compiler_lock:
            if signature in self.overloads:
                return self.overloads[signature].entry_point
            kept = cache.load(self.kept_as, signature)
            if kept is None:
                return self._compile_or_wait(signature)
            return self._load(signature, kept)

    def _compile_or_wait(self, signature):
        companion.tell(progress.name_of(self.kept_as))
        with claims.claim(cache.place_of(self.kept_as, signature), self.kept_as):
            kept = cache.load(self.kept_as, signature)  # if another process was first
            if kept is not None:
                return self._load(signature, kept)
            with progress.compiling(self.kept_as), no_collection():
                found = super().compile(signature)
            self.compiled += 1
            self._save(signature)
            return found

    def _save(self, signature):
        result = self.overloads[signature]
        if result.library.has_dynamic_globals or result.environment.consts:
            return  # addresses and objects of this process
        runtime = any(f.name.startswith(RUNTIME) for f in result.library._final_module.functions)
        description = result.fndesc
        names = description.llvm_cpython_wrapper_name, description.env_name, description.qualname
        code = result.library._get_compiled_object()
        cache.save(self.kept_as, signature, (result.library.name, code, names, result.signature.return_type, runtime))

    def _load(self, signature, kept):
        self.loaded += 1
        name, code, (wrapper, environment_name, qualname), return_type, runtime = kept
        if runtime:
            self.targetctx.refresh()
        codegen = self.targetctx.codegen()
        library = _EntryLibrary(codegen, name)
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._finalize_final_module()
        codegen._engine._defined_symbols.update((wrapper, environment_name))
        environment = Environment(self.py_func.__globals__)
        names = {"llvm_cpython_wrapper_name": wrapper, "env_name": environment_name, "qualname": qualname}
        description = SimpleNamespace(**names, lookup_module=lambda: import_module(self.py_func.__module__))
        function = self.targetctx.get_executable(library, description, environment)
        self._insert([kind._code for kind in signature], function, False)
        self.overloads[signature] = SimpleNamespace(
            entry_point=function, objectmode=False, signature=typing.signature(return_type, *signature)
        )
        return function
