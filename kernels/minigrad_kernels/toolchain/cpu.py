"""Kernels on the CPU: functions that Numba compiles when they are first called, and the threads that run them.

`jit` is for a serial function, `shared` of team.py for one whose work threads share. Importing this module imports no
Numba, starts no thread, changes no environment variable and no setting of another library.
"""

import functools
import os
import threading
import warnings

import numpy as np

from ..errors import KindError, ShapeError
from .machine import cpu_quota
from .watch import launched, watchers

__all__ = ["Kernel", "alias", "compiled", "elements", "in_team", "jit", "linker", "set_threads", "threads"]


# ---- compilation ---------------------------------------------------------------------------------

NUMBA = (0, 62), (0, 69)  # from this version on, below that one: whose internals compiler.py knows


class Kernel:
    """A serial function, for kernels to call and for Python."""

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function

    @functools.cached_property
    def part(self):
        """What kernels call."""
        own = linker()
        return own.Part(self.function) if own else compiled(self.function)

    @functools.cached_property
    def entry(self):
        """What Python calls."""
        own = linker()
        return own.Entry(self.function) if own else compiled(self.function)

    @property
    def _numba_type_(self):
        return self.part._numba_type_

    def __call__(self, *arguments):
        if watchers():
            return launched(self, self, *arguments)
        return self.entry(*arguments)


def jit(function):
    """Compile a serial kernel, or a helper that other kernels call."""
    return Kernel(function)


@functools.cache
def linker():
    """The module compiler.py; None with a version of Numba whose internals it does not know."""
    import numba

    if not NUMBA[0] <= numba.version_info.short < NUMBA[1]:
        low, high = (".".join(map(str, version)) for version in NUMBA)
        _warn(
            f"kernels use one thread, compile slowly and are not kept on disk: numba is {numba.__version__}, "
            f"wanted numba>={low},<{high}"
        )
        return None
    from . import compiler

    return compiler


def compiled(function):
    """The function compiled in Numba's own way."""
    import numba

    return numba.njit(error_model="numpy", nogil=True)(function)


@functools.cache
def _warn(text):
    """Once in a process."""
    warnings.warn(text, RuntimeWarning, stacklevel=3)


# ---- threads -------------------------------------------------------------------------------------

_threads = None  # chosen by set_threads; None: the default
_team_lock = threading.RLock()  # Numba's workqueue layer aborts when two threads enter it at once
_forked = False  # a team of threads does not survive a fork


def _after_fork():
    global _forked, _team_lock
    _forked, _team_lock = True, threading.RLock()  # another thread may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _most():
    """The most threads that Numba's pool will ever have: it says when it is imported."""
    from numba.core import config

    return config.NUMBA_NUM_THREADS


@functools.cache
def _default_threads():
    # Numba's own limit already counts the CPUs that this process may run on.
    return min(_most(), cpu_quota() or _most())


def threads():
    """How many threads a shared kernel uses."""
    wanted = _threads or _default_threads()
    if _forked and wanted > 1:
        _warn("a forked process has no threads: kernels use one; spawn it to have more, or say set_threads(1)")
        return 1
    return wanted


def set_threads(n):
    """Use n threads, at least 1, in shared kernels from now on. Results have the same bits for any n.

    Errors  TypeError if n is no integer; ValueError if n is less than 1 or more than Numba was started with
    """
    global _threads
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise KindError(f"set_threads: n is {type(n).__name__}, wants an integer")
    if not 1 <= n <= _most():
        raise ShapeError(
            f"set_threads: n = {n}, but Numba allows 1 to {_most()} threads here "
            "(set NUMBA_NUM_THREADS before Python starts to allow more)"
        )
    _threads = int(n)


@functools.cache
def _pool():
    """Numba's pool of threads, started by the first call: (the address of its door, how many take part, set that).

    The functions are the ones below numba.get_num_threads and numba.set_num_threads, without a look at two locks each
    time. The address is 0 in a version of Numba that keeps its pool elsewhere.
    """
    import llvmlite.binding
    import numba

    numba.get_num_threads()
    door = llvmlite.binding.address_of_symbol("numba_parallel_for") or 0
    from numba.np.ufunc import parallel as layer

    names = ("_get_num_threads", "get_num_threads"), ("_set_num_threads", "set_num_threads")
    return door, *(getattr(layer, inner, None) or getattr(numba, outer) for inner, outer in names)


def in_team(call, n, *arguments):
    """call(door of the pool, n threads, ...) under the lock of the process; on one thread if there is no pool."""
    with _team_lock:
        door, size, resize = _pool()
        if not door:
            _warn("kernels use one thread: this numba has no numba_parallel_for; install another version of numba")
            return call(0, 1, *arguments)
        before = size()
        try:
            return call(door, n, *arguments)
        finally:
            if before != n:  # the pool sets it to n: other code of Numba's counts on it
                resize(before)


# ---- memory --------------------------------------------------------------------------------------


class _Memory:
    """Another door to the memory of an array, which it keeps alive."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)}


def elements(workspace, dtype, count):
    """So many elements of this type in a workspace, bytes, from the first address on that is a multiple of one."""
    size = dtype.itemsize
    found = workspace[: count * size].view(dtype)
    if found.flags.aligned:  # as nearly always
        return found
    start = -workspace.ctypes.data % size
    return workspace[start : start + count * size].view(dtype)


def alias(array):
    """The same array, not marked read-only: to Numba those are two types, and each costs a compilation.

    Only for arrays that a kernel reads. Arrays that are not NumPy's own come back as they are.
    """
    if type(array) is not np.ndarray or array.flags.writeable:
        return array
    return np.asarray(_Memory(array))
