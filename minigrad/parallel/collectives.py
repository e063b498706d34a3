"""Collectives on the host, made of exchanges of messages.

Math    all_reduce: each rank adds one part of the array over all ranks, pairwise in their order, then everyone gets
        all parts. So a bit of the result depends on the terms alone, not on the transport, the size of the array or
        the place of an element in it.

Floating-point addition is not associative, so a sum has as many values as orders. Pairwise is ((a0 + a1) + (a2 + a3))
+ ...: a rank that holds an aligned block of 2^k of the terms can add them first, and the total keeps its bits.

Source  Higham 1993, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (pairwise summation)
"""

import numpy as np

from .. import device
from .work import Worker

__all__ = ["OPS", "HostCollectives", "pairwise"]

OPS = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}  # a mean is a sum, divided in the end
SMALL = 1 << 14  # bytes; up to here every rank gets the whole of every other, as waiting twice would cost more


def pairwise(parts, add=np.add):
    """The sum of arrays of one shape, neighbours first, a last one without a neighbour passed on; they stay the same.

    add     a ufunc of two arguments
    """
    level, owned = list(parts), False
    while len(level) > 1:
        rest = level[len(level) & ~1 :]  # it never comes first in a pair, so it is not written
        level = [add(a, b, out=a if owned else None) for a, b in zip(level[::2], level[1::2], strict=False)] + rest
        owned = True
    return level[0]


class HostCollectives:
    """Each takes arrays without gaps, flat, and says `what` it is in words that all ranks share."""

    def __init__(self, exchange):
        self.exchange, self.rank, self.size = exchange, exchange.rank, exchange.size
        self._worker = Worker()

    def start(self, run, value, asynchronous):
        """Do run() now, or in a thread beside after what that was given before; the value, or the Work of it."""

        def done():
            run()
            return value

        if not asynchronous and self._worker.idle:
            return done()
        work = self._worker.submit(done)
        return work if asynchronous else work.wait()

    def close(self):
        self._worker.close()

    def all_reduce(self, flat, op, what):
        if (n := self.size) == 1:
            return
        values = device.host(flat)
        if values.nbytes <= SMALL:
            device.assign(flat, self._total(self._swapped(what, lambda rank: values), op))
        else:
            step = -(-values.size // n)
            total = self._own_part(values, [min(r * step, values.size) for r in range(n + 1)], op, what)
            device.assign(flat, np.concatenate(self._swapped(f"{what}: totals", lambda rank: total)))

    def all_gather(self, whole, flat, what):
        values = device.host(flat)
        device.assign(whole, np.concatenate(self._swapped(what, lambda rank: values)))

    def broadcast(self, flat, root, what):
        values = device.host(flat) if self.rank == root else np.empty(0, flat.dtype)
        device.assign(flat, self._swapped(what, lambda rank: values)[root])

    def _own_part(self, values, bounds, op, what):
        """The sum over ranks of the elements from bounds[rank] to bounds[rank + 1]; the other ranks get theirs."""
        return self._total(self._swapped(what, lambda rank: values[bounds[rank] : bounds[rank + 1]]), op)

    def _total(self, parts, op):
        total = pairwise(parts, OPS[op])
        return total / self.size if op == "mean" else total

    def _swapped(self, what, part_of):
        """What each rank sends to this one, in their order, where part_of(rank) is what it gets."""
        own = part_of(self.rank)
        found = self.exchange.swap(what, part_of)
        return [own if rank == self.rank else found[rank].view(own.dtype) for rank in range(self.size)]
