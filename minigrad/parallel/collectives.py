"""Collectives on the host, made of exchanges of messages.

Math    all_reduce: each rank adds one part of the array over all ranks, pairwise in their order, then everyone gets
        all parts. So a bit of the result depends on the terms alone, not on the transport, the size of the array or
        the place of an element in it.

Floating-point addition is not associative, so a sum has as many values as orders. Pairwise is ((a0 + a1) + (a2 + a3))
+ ...: a rank that holds an aligned block of 2^k of the terms can add them first, and the total keeps its bits.

Source  Higham 1993, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (pairwise summation)
"""

import time
from concurrent import futures

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import is_dense

from .. import device
from ..core.tape import write
from ..core.tensor import Tensor
from .errors import CommunicationError, DisagreementError
from .transport import deadline_after

COLLECTIVE, CONTROL, FIRST_TAG = 0, 1, 2  # channels: for collectives, for words, and from there on for tags
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


# ---- arrays: their elements in the order of memory, without gaps, on the host or not --------------------------------


def flat_of(op, name, array, changed=True):
    """A view of the elements of an array or a leaf Tensor, one after another as they lie in memory.

    changed     whether they will be written, which a Tensor must know
    Errors      TypeError for what is neither, ValueError where memory has gaps, RuntimeError for a Tensor with history
    """
    if isinstance(array, Tensor):
        array = write(array) if changed else array.array
    if not device.is_array(array):
        raise KindError(f"{op}: {name} is a {type(array).__name__}, wanted an array or a Tensor")
    if not device.can_hold_a_sum(array) and (changed or not is_dense(array, device.order_of(array))):
        raise ShapeError(f"{op}: {name} (shape {array.shape}) is read-only or has gaps, wanted a dense array")
    return array.transpose(device.order_of(array)).reshape(-1)


def words(array):
    """Element type, shape and, unless it is C's, the order of the axes in memory: what ranks must have in common."""
    array = array.array if isinstance(array, Tensor) else array
    turned = "" if array.flags.c_contiguous else f"in{device.order_of(array)}"
    return f"{array.dtype}{array.shape}{turned}".replace(" ", "")


# ---- collectives -----------------------------------------------------------------------------------------------------


class Work:
    """What an operation that goes on by itself will give; its Future gives the time.perf_counter() of its end."""

    def __init__(self, future, value):
        self._future, self._value = future, value

    @property
    def done(self):
        """Whether it has ended, well or not."""
        return self._future.done()

    @property
    def ended(self):
        """The time.perf_counter() of its end, None before."""
        return self._future.result() if self.done else None

    def wait(self):
        """The result, once it is there. Errors: those of the operation."""
        self._future.result()
        return self._value


class HostCollectives:
    """Each takes arrays without gaps, flat, and says `what` it is in words that all ranks share.

    timeout     seconds for one operation
    """

    def __init__(self, transport, timeout):
        self.transport, self.timeout, self.rank, self.size = transport, timeout, transport.rank, transport.size
        # Each begins with another peer, so that no rank is flooded.
        self.peers = [(self.rank + step) % self.size for step in range(1, self.size)]
        self._thread, self._latest = futures.ThreadPoolExecutor(1, "minigrad-communication"), None

    def start(self, run, value, asynchronous):
        """Do run() now, or in a thread beside after what that was given before; the value, or the Work of it."""
        if not asynchronous and (self._latest is None or self._latest.done):
            run()
            return value

        def timed():
            run()
            return time.perf_counter()

        work = self._latest = Work(self._thread.submit(timed), value)
        return work if asynchronous else work.wait()

    def close(self):
        """Wait for all that was begun."""
        self._thread.shutdown()

    def swap(self, what, payload_of, kind=COLLECTIVE):
        """The step of which all is made: {peer: the bytes that it sent}, where payload_of(peer) is the array it gets.

        what    this call in words; it goes with the array, and all ranks must say the same
        Errors  those of the module `errors`; all ranks are told then
        """
        deadline, found = deadline_after(self.timeout), {}
        try:
            posted = [self.transport.post(peer, kind, what, payload_of(peer)) for peer in self.peers]
            for peer in self.peers:
                theirs, found[peer] = self.transport.take(peer, kind, deadline)
                if theirs != what:
                    raise DisagreementError(f"rank {peer} does {theirs}, rank {self.rank} does {what}")
            self.transport.settle(deadline, posted)
        except CommunicationError as error:
            said = str(error)  # another rank of the same call may have said it
            failed = type(error)(said if said.startswith(f"{what}:") else f"{what}: {said}")
            self.transport.abort(str(failed))
            raise failed from None
        except BaseException as error:  # half a call is worse than none: the next would take its messages
            self.transport.abort(f"{what}: rank {self.rank}: {type(error).__name__}: {error}")
            raise
        return found

    def gathered(self, what, message, kind=COLLECTIVE):
        """The bytes that each rank gave, in the order of ranks; their lengths may differ."""
        payload = np.frombuffer(message, np.uint8)
        found = self.swap(what, lambda peer: payload, kind)
        return [message if rank == self.rank else found[rank].tobytes() for rank in range(self.size)]

    def all_reduce(self, flat, op, what):
        if self.size > 1:
            device.assign(flat, self._summed(device.host(flat), op, what))

    def all_gather(self, whole, flat, what):
        device.assign(whole, self._whole(device.host(flat), what))

    def broadcast(self, flat, root, what):
        values = device.host(flat) if self.rank == root else np.empty(0, flat.dtype)
        device.assign(flat, self._swapped(what, lambda rank: values)[root])

    def _summed(self, values, op, what):
        """The sum over ranks: of small arrays each adds all, of large ones each adds a part and all get the parts."""
        if values.nbytes <= SMALL:
            return self._total(list(self._whole(values, what).reshape(self.size, -1)), op)
        step = -(-values.size // self.size)
        total = self._total(self._swapped(what, lambda rank: values[rank * step : (rank + 1) * step]), op)
        part = device.empty((step,), total.dtype, like=total)
        part[: total.size] = total
        return self._whole(part, f"{what}: totals")[: values.size]

    def _whole(self, part, what):
        """The equal parts of all ranks, one after another."""
        return np.concatenate(self._swapped(what, lambda rank: part))

    def _total(self, parts, op):
        total = pairwise(parts, OPS[op])
        return total / self.size if op == "mean" else total

    def _swapped(self, what, part_of):
        """What each rank sends to this one, in their order, where part_of(rank) is what it gets."""
        own = part_of(self.rank)
        found = self.swap(what, part_of)
        return [own if rank == self.rank else found[rank].view(own.dtype) for rank in range(self.size)]
