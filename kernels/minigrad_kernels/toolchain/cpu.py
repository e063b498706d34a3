"""Numba on the CPU: how kernels are compiled, cached and run on several threads.

`jit` compiles a serial kernel, `parallel` one whose outer loop is a `prange`. Compiled code is kept in a
folder named by everything that it depends on, so that a stale kernel can never run. Importing this module
starts no thread, changes no environment variable and no setting of another library.
"""

import functools
import hashlib
import os
import platform
import sys
import tempfile
import threading
from pathlib import Path

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import config, types
from numba.core.cgutils import alloca_once
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from ..errors import KindError, ShapeError
from .machine import brief_spinning, cpu_quota

__all__ = [
    "alias", "array_at", "cache_folder", "jit", "parallel", "set_threads", "stack_array", "threads", "user_cache",
]  # fmt: skip

# No fast-math flag, not even contract: whether x*y + z is rounded once would follow from whether the compiler chose
# vectors at that place, and so from the layout and the number of threads. The microkernels say contract themselves.
OPTIONS = dict(error_model="numpy", nogil=True)
# Settings of Numba that change the code it emits and that its own cache index does not look at.
EMISSION = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "ENABLE_AVX")


# ---- cache ---------------------------------------------------------------------------------------


def user_cache():
    """The folder for caches of this user, by the convention of the operating system."""
    if os.environ.get("MINIGRAD_CACHE"):
        return Path(os.environ["MINIGRAD_CACHE"]).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "minigrad"


def _sources():
    """The source files that code compiled for the CPU can reach: no references, nothing of CUDA."""
    root = Path(__file__).parents[1]
    aside = ("reference", "cuda", "interpreter")  # files and folders
    return sorted(
        file for file in root.rglob("*.py") if not any(part.startswith(aside) for part in file.relative_to(root).parts)
    )


@functools.cache
def fingerprint():
    """A short hash of the kernel sources, the versions of the tools, and the CPU."""
    cpu = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    tools = (platform.python_version(), np.__version__, numba.__version__, llvmlite.__version__)
    emission = [getattr(config, name, None) for name in EMISSION]
    digest = hashlib.sha256(repr((tools, platform.machine(), cpu, features, emission)).encode())
    root = Path(__file__).parents[1]
    for file in _sources():
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:20]


@functools.cache
def cache_folder(variant):
    """The folder for compiled kernels of a variant ("serial" or "team"); None where nothing can be written.

    The variants need folders of their own because Numba's index tells them apart by the function alone.
    """
    try:
        folder = user_cache() / "kernels" / f"{fingerprint()}-{variant}"
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return None
    return folder


_decorating = threading.Lock()


def compiled(function, variant, compiler=numba.njit, **options):
    """What a compiler of Numba makes of a function. The cache setting of the process is changed only meanwhile."""
    has_file = Path(function.__code__.co_filename).exists()  # typed at a prompt: nothing to name the cache by
    folder = cache_folder(variant) if has_file else None
    with _decorating:
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder or "")
        try:
            return compiler(cache=folder is not None, **OPTIONS, **options)(function)
        finally:
            config.CACHE_DIR = before


def jit(function):
    """Compile a serial kernel, or a helper that other kernels call."""
    return compiled(function, "serial")


# ---- threads -------------------------------------------------------------------------------------

_threads = None  # chosen by set_threads; None: the default
_team_lock = threading.RLock()  # Numba's workqueue layer aborts when two threads enter it at once
_forked = False  # a team of threads does not survive a fork


def _after_fork():
    global _forked, _team_lock
    _forked, _team_lock = True, threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _default_threads():
    # Numba's own limit already counts the CPUs that this process may run on.
    return min(config.NUMBA_NUM_THREADS, cpu_quota() or config.NUMBA_NUM_THREADS)


def threads():
    """How many threads a parallel kernel uses."""
    return 1 if _forked else _threads or _default_threads()


def set_threads(n):
    """Use n threads, at least 1, in parallel kernels from now on. Results have the same bits for any n.

    Errors  TypeError if n is no integer; ValueError if n is less than 1 or more than Numba was started with
    """
    global _threads
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise KindError(f"set_threads: n is {type(n).__name__}, wants an integer")
    if not 1 <= n <= config.NUMBA_NUM_THREADS:
        raise ShapeError(
            f"set_threads: n = {n}, but Numba allows 1 to {config.NUMBA_NUM_THREADS} threads here "
            "(set NUMBA_NUM_THREADS before Python starts to allow more)"
        )
    _threads = int(n)


@functools.cache
def _team():
    """Numba's team of threads, started by the first call: functions that ask for and set how many of it take part.

    They are the ones below numba.get_num_threads and numba.set_num_threads, without a look at two locks each time.
    """
    with brief_spinning():
        numba.get_num_threads()
    from numba.np.ufunc import parallel as layer

    names = ("_get_num_threads", "get_num_threads"), ("_set_num_threads", "set_num_threads")
    return tuple(getattr(layer, inner, None) or getattr(numba, outer) for inner, outer in names)


class parallel:
    """A kernel with a `prange` loop, compiled when first needed, for a team and as a serial function.

    Calling it runs the serial version where there is one thread or the process was forked. Otherwise it
    enters the team under the lock of the process. `alone` is for work too small to share: it stays on the
    calling thread.
    """

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function

    @functools.cached_property
    def serial(self):
        return compiled(self.function, "serial")

    @functools.cached_property
    def team(self):
        return compiled(self.function, "team", parallel=True)

    def __call__(self, *arguments):
        n = threads()
        return self.serial(*arguments) if n == 1 else self._enter(n, arguments)

    def alone(self, *arguments):
        # A team of one costs a microsecond; a second compilation would cost half a second.
        return self.serial(*arguments) if threads() == 1 else self._enter(1, arguments)

    def _enter(self, n, arguments):
        with _team_lock:
            # Asked anew each time: other code may have called numba.set_num_threads, for this thread or another.
            size, resize = _team()
            before = size()
            if before == n:
                return self.team(*arguments)
            resize(n)
            try:
                return self.team(*arguments)
            finally:
                resize(before)


# ---- memory --------------------------------------------------------------------------------------


@intrinsic
def _pointer(typing_context, address, like):
    """The address, an int64, as a pointer to elements of the type that the array `like` has."""
    if not isinstance(address, types.Integer) or not isinstance(like, types.Array):
        return None
    pointer = types.CPointer(like.dtype)

    def generate(context, builder, signature, values):
        return builder.inttoptr(values[0], context.get_value_type(pointer))

    return pointer(address, like), generate


@jit
def array_at(address, size, like):
    """The `size` elements at an address, an int64, as a 1-D array typed as `like`. For use in kernels."""
    return numba.carray(_pointer(address, like), (size,))


class _Memory:
    """Another door to the memory of an array, which it keeps alive."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)}


def alias(array):
    """The same array, not marked read-only: to Numba those are two types, and each costs a compilation.

    Only for arrays that a kernel reads. Arrays that are not NumPy's own come back as they are.
    """
    if type(array) is not np.ndarray or array.flags.writeable:
        return array
    return np.asarray(_Memory(array))


@intrinsic(prefer_literal=True)
def stack_array(typing_context, size, like):
    """A 1-D array of `size` elements (a literal number) typed as `like`, not cleared. For use in kernels.

    It lives on the stack of the function that asks for it, until that function returns.
    """
    if not isinstance(size, types.IntegerLiteral) or not isinstance(like, types.Array):
        return None
    array_type, count = types.Array(like.dtype, 1, "C"), size.literal_value

    def generate(context, builder, signature, values):
        element = context.get_data_type(like.dtype)
        memory = alloca_once(builder, ir.ArrayType(element, count))
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(element))
        array = make_array(array_type)(context, builder)
        data = builder.bitcast(memory, element.as_pointer())
        shape = [context.get_constant(types.intp, count)]
        populate_array(array, data=data, shape=shape, strides=[itemsize], itemsize=itemsize, meminfo=None)
        return array._getvalue()

    return array_type(size, like), generate
