"""Kernels whose work a team of threads shares, compiled once for one thread and for many.

A shared kernel is a serial function of its share of the work:

    @shared
    def double(team, x, out):
        for k in share(x.size, team):
            out[k] = 2 * x[k]

    double(x, out)

`team` is the pair (number of this share, how many there are), which the call adds; `share` gives a run of the range,
and all shares together give each index once. Every share runs the whole function, so what stands beside the loop is
done by each of them: it must not be a result, and no share may read what another one writes. A loop that needs the
results of another is a second kernel, and so is what adds up the results of a loop.

Numba has a pool of threads but hands it only to its own parallel loops, whose compilation takes twice as long and
gives nothing that one thread can run. So the few instructions that hand a function to the pool are emitted here.
The address of the pool's door is an argument, 0 for no team: compiled code holds no address, and none is looked up
by a process that needs one thread.
"""

import functools
import inspect

from .cpu import Kernel, in_team, jit, linker, threads
from .watch import launched, watchers

__all__ = ["share", "shared"]


@jit
def share(count, team):
    """The run of the indices below `count` that belongs to this share, as a range. For use in shared kernels."""
    return range(team[0] * count // team[1], (team[0] + 1) * count // team[1])


class shared:
    """A kernel of which each thread does a share.

    Calling it cuts the work into as many shares as there are threads; `alone` is for work too small to share, and
    stays on the calling thread; `on(n, ...)` makes n shares. All run the same machine code, in a forked child on one
    thread, and give the same bits if sums are split by shape alone.
    """

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function
        signature = inspect.signature(function)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # a call adds team

    @functools.cached_property
    def entry(self):
        """What Python calls: (door of the pool, threads, number of shares, arguments of the kernel)."""
        if linker() is None:
            return _one_after_another(Kernel(self.function))
        from .spread import entry_of

        return entry_of(self.function)

    def __call__(self, *arguments):
        self.on(threads(), *arguments)

    def alone(self, *arguments):
        if watchers():
            return launched(self, self.alone, *arguments)
        self.entry(0, 1, 1, *arguments)

    def on(self, shares, *arguments):
        if watchers():
            return launched(self, self.on, shares, *arguments)
        n = min(shares, threads())
        if n == 1:
            self.entry(0, 1, shares, *arguments)
        else:
            in_team(self.entry, n, shares, *arguments)


def _one_after_another(kernel):
    def entry(door, threads, shares, *arguments):
        for number in range(shares):
            kernel((number, shares), *arguments)

    return entry
