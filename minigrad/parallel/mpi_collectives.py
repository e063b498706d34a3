"""The collectives of MPI itself, on arrays of the host."""

import numpy as np

from .arrays import on_host, store
from .collectives import SMALL, HostCollectives
from .errors import CommunicationError
from .exchange import NOTHING
from .transport import deadline_after

__all__ = ["MpiCollectives", "pieces"]

PIECE = 1 << 30  # bytes, or elements, in one call: counts of MPI before version 4 are 32-bit


def pieces(payload):
    return [payload[start : start + PIECE] for start in range(0, payload.size, PIECE)]


class MpiCollectives(HostCollectives):
    """With order "native", and for what is not added, the collectives of MPI itself, after a word with all ranks.

    The word comes first because MPI does not compare what ranks do, and writes beyond an array where it differs. The
    largest and smallest of fractions are taken as in order "fixed", since MPI does not say what becomes of NaN.
    """

    def __init__(self, exchange):
        super().__init__(exchange)
        self._transport, self._group = exchange.transport, None
        mpi = self._mpi = exchange.transport.mpi
        self._ops = {"sum": mpi.SUM, "mean": mpi.SUM, "max": mpi.MAX, "min": mpi.MIN}

    def all_reduce(self, flat, op, order, wire, what):
        if not self._adds(flat, op, order, wire):
            return super().all_reduce(flat, op, order, wire, what)
        self._agree(what)
        values = on_host(flat)
        for part in pieces(values):
            self._do(what, lambda group, part=part: group.Iallreduce(self._mpi.IN_PLACE, part, self._ops[op]))
        store(flat, self._divided(values, op))

    def reduce_scatter(self, part, flat, op, order, wire, what):
        if not self._adds(flat, op, order, wire) or flat.size > PIECE:
            return super().reduce_scatter(part, flat, op, order, wire, what)
        self._agree(what)
        values, total = on_host(flat), np.empty(part.size, part.dtype)
        self._do(what, lambda group: group.Ireduce_scatter_block(values, total, self._ops[op]))
        store(part, self._divided(total, op))

    def all_gather(self, whole, flat, what):
        if not SMALL < whole.nbytes <= PIECE:
            return super().all_gather(whole, flat, what)
        self._agree(what)
        values, found = on_host(flat), _room(whole, flat)
        self._do(what, lambda group: group.Iallgather(_bytes(values), _bytes(found)))
        store(whole, found)

    def all_to_all(self, whole, flat, what):
        if not SMALL < whole.nbytes <= PIECE:
            return super().all_to_all(whole, flat, what)
        self._agree(what)
        values, found = on_host(flat), _room(whole, flat)
        self._do(what, lambda group: group.Ialltoall(_bytes(values), _bytes(found)))
        store(whole, found)

    def broadcast(self, flat, root, what):
        if flat.nbytes <= SMALL:
            return super().broadcast(flat, root, what)
        self._agree(what)
        values = on_host(flat)
        for part in pieces(_bytes(values)):
            self._do(what, lambda group, part=part: group.Ibcast(part, root))
        store(flat, values)

    def _adds(self, flat, op, order, wire):
        """Whether MPI does the sum; of a small array the words alone would take as long as the whole exchange."""
        kind, mpi = flat.dtype.kind, self._mpi
        exact = kind in "iu" or kind == "f" and op in ("sum", "mean")
        if order != "native" or wire or flat.nbytes <= SMALL or not exact:
            return False
        return mpi.Datatype.fromcode(flat.dtype.char) != mpi.DATATYPE_NULL  # some have no float16

    def _divided(self, total, op):
        return np.divide(total, self.size, out=total) if op == "mean" else total

    def _agree(self, what):
        self.exchange.swap(what, lambda peer: NOTHING)
        if self._group is None:  # now all are here, so this cannot wait in vain
            world, exchange = self._transport.messages, self.exchange
            self._group = world.Create_group(world.Get_group().Incl(exchange.members), exchange.group)

    def _do(self, what, begin):
        transport = self._transport
        try:
            request = transport.asked(lambda: begin(self._group))
            transport.until(request.Test, deadline_after(self.exchange.timeout), None, "not done in time")
        except CommunicationError as error:
            failed = type(error)(f"{what}: {error}")
            transport.abort(str(failed))
            raise failed from None


def _room(out, array):
    """Memory of the host for what belongs in `out`: its own, if that is there and not what is sent."""
    there = type(out) is np.ndarray and not np.may_share_memory(out, array)
    return out if there else np.empty(out.size, out.dtype)


def _bytes(array):
    return array.view(np.uint8)
