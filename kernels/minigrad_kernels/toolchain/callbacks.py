"""Kernels as functions of C, kept on disk as entries are: Numba would fill its tables before it loads one."""

from types import SimpleNamespace

from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock

from . import cache, progress
from .compiler import no_collection

__all__ = ["callback"]


def callback(function, signature):
    """The function compiled for a signature of Numba's: an object with its `address`, valid while the object lives."""
    made = _Callback(function, (signature.args, signature.return_type), {}, {"error_model": "numpy"})
    made._cache = _Kept(function)
    with global_compiler_lock:
        made.compile()
    return made


class _Callback(CFunc):
    def _compile_uncached(self):
        with progress.compiling(self._pyfunc), no_collection():
            return super()._compile_uncached()


class _Kept:
    """Stands where a C function of Numba's has its cache."""

    def __init__(self, function):
        self.function = function

    def load_overload(self, signature, context):
        kept = cache.load(self.function, signature)
        if kept is None:
            return None
        name, code, wrapper = kept
        codegen = context.codegen()
        library = JITCodeLibrary(codegen, name)
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._finalize_final_module()
        codegen._engine._defined_symbols.add(wrapper)
        return SimpleNamespace(library=library, fndesc=SimpleNamespace(llvm_cfunc_wrapper_name=wrapper))

    def save_overload(self, signature, result):
        if not result.library.has_dynamic_globals:
            kept = result.library.name, result.library._get_compiled_object(), result.fndesc.llvm_cfunc_wrapper_name
            cache.save(self.function, signature, kept)
