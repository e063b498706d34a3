"""Kernels on the CPU: functions that Numba compiles when they are first called, and the threads that run them.

`jit` is for a serial function, `shared` for one whose work a team of threads shares. It is compiled once, for one
thread and for many:

    @shared
    def double(team, x, out):
        for k in share(x.size, team):
            out[k] = 2 * x[k]

    double(x, out)

`team` is the pair (number of this share, how many there are), which the call adds; `share` gives a run of the range,
and all shares together give each index once. Every share runs the whole function, so what stands beside the loop is
done by each of them: it must not be a result, and no share may read what another one writes. A loop that needs the
results of another is a second kernel, and so is what adds up the results of a loop.

Importing this module imports no Numba, starts no thread, changes no environment variable and no setting of another
library.
"""

import functools
import inspect
import math
import os
import threading
import warnings
from pathlib import Path

import numpy as np

from ..errors import KindError, ShapeError, StateError
from .watch import launched, watchers

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
        return linker().Part(self.function)

    @functools.cached_property
    def entry(self):
        """What Python calls."""
        return linker().Entry(self.function)

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
    """The module compiler.py.

    Errors  RuntimeError with a version of Numba whose internals it does not know
    """
    import numba

    if not NUMBA[0] <= numba.version_info.short < NUMBA[1]:
        low, high = (".".join(map(str, version)) for version in NUMBA)
        raise StateError(f"kernels: numba is {numba.__version__}, wants numba>={low},<{high}")
    from . import compiler

    return compiler


# ---- threads -------------------------------------------------------------------------------------

SMALL = 1 << 16  # elements; below it a second thread costs more than it brings
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
        _warn_once()
        return 1
    return wanted


@functools.cache
def _warn_once():
    text = "a forked process has no threads: kernels use one; spawn it to have more, or say set_threads(1)"
    warnings.warn(text, RuntimeWarning, stacklevel=3)


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


def in_team(call, n, *arguments):
    """call(address of the pool's function, n threads, ...) under a lock of the process."""
    with _team_lock:
        door, size, resize = linker().pool()
        before = size()
        try:
            return call(door, n, *arguments)
        finally:
            if before != n:  # the pool sets it to n: other code of Numba's counts on it
                resize(before)


@jit
def share(count, team):
    """The run of the indices below `count` that belongs to this share, as a range. For use in shared kernels."""
    return range(team[0] * count // team[1], (team[0] + 1) * count // team[1])


class shared:
    """A kernel of which each thread does a share.

    Calling it cuts the work into as many shares as there are threads; so does `over(size, ...)`, unless the elements
    that it passes over are few; `on(n, ...)` makes n shares. All run the same machine code, in a forked child on one
    thread, and give the same bits if sums are split by shape alone.
    """

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function
        signature = inspect.signature(function)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # a call adds team

    @functools.cached_property
    def entry(self):
        """What Python calls: (address of the pool's function, threads, number of shares, arguments of the kernel)."""
        return linker().entry_of(self.function)

    def __call__(self, *arguments):
        self.on(threads(), *arguments)

    def over(self, size, *arguments):
        self.on(1 if size < SMALL else threads(), *arguments)

    def on(self, shares, *arguments):
        if watchers():
            return launched(self, self.on, shares, *arguments)
        if shares == 1 or (n := min(shares, threads())) == 1:
            self.entry(0, 1, shares, *arguments)
        else:
            in_team(self.entry, n, shares, *arguments)


# ---- what the machine grants a process ---------------------------------------------------------------------------


def cpu_quota(groups=Path("/sys/fs/cgroup")):
    """CPUs that the container may use, at least 1, parts of one rounded up; None where there is no such limit.

    Half a CPU more is worth a thread: work is shared out in small pieces, and a thread that has used up its share of a
    period leaves the rest to the others.

    groups      where Linux shows a container its control group, of version 2 or of version 1
    """
    try:
        if (groups / "cpu.max").exists():
            quota, period = (groups / "cpu.max").read_text().split()
        else:
            quota, period = ((groups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return max(1, math.ceil(int(quota) / int(period))) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # "max": no limit
        return None


# ---- memory --------------------------------------------------------------------------------------


class Memory:
    """Another door to the memory of an array, which it keeps alive; changes: of its __array_interface__."""

    def __init__(self, array, **changes):
        self.array = array
        self.__array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)} | changes


def elements(workspace, like, dtype, *shape):
    """An array in memory from a workspace, see launcher.py, on the device of the array `like`."""
    return workspace(math.prod(shape) * dtype.itemsize, like).view(dtype).reshape(shape)


def alias(array):
    """The same array, not marked read-only: to Numba those are two types, and each costs a compilation.

    Only for arrays that a kernel reads. Arrays that are not NumPy's own come back as they are.
    """
    if type(array) is not np.ndarray or array.flags.writeable:
        return array
    return np.asarray(Memory(array))
