"""Collectives between GPUs by NCCL, on a stream of their own beside the one that computes.

A collective waits, by an event, for what the caller's current stream was told before; wait() of its Work lets the
current stream go on after it. The host never waits for the GPU, and goes on at once.

order   "native": NCCL's sums, which drop NaN from the largest and the smallest; "fixed", and with a wire: each rank
        gets one part of the array of all others, adds pairwise, and all gather the parts, with the bits of the host

NCCL compares nothing between ranks, and a rank that waits in vain waits for ever. So ranks first tell one another what
they are about to do, by way of the host. What a training step does again and again is told once: two calls that
followed one another before need no word, but every so often, and with every word, the ranks compare all they did. And
a thread looks on: where a collective is late or failed, it says which and ends the process, for a host that waits for
a GPU cannot be woken.
"""

import threading
import zlib

import numpy as np

from minigrad_kernels.errors import StateError
from minigrad_kernels.toolchain.capture import capturing

from .. import device
from .arrays import store
from .collectives import SMALL, HostCollectives
from .errors import CommunicationError, DisagreementError
from .nccl_watch import GRACE, Calling, Started, Watch
from .sums import decoded, encoded

__all__ = ["NcclCollectives"]

OFTEN = 256  # calls after which the ranks compare in any case


class NcclCollectives(HostCollectives):
    """The collectives of one group on arrays of one GPU.

    host    does collectives of the same group on the host; their order and that of these is the same on all ranks
    gpu     the place of the GPU
    """

    def __init__(self, exchange, host, gpu):
        super().__init__(exchange)
        from ..device.nccl import Nccl, version

        self._version, self.nccl, self.host = version(), Nccl(gpu), host
        self._agreed, self._latest, self._count, self._history = set(), "", 0, 0
        self._watch, self._calling = Watch(self.nccl, exchange, self.rank), Calling("")

    # ---- calls ---------------------------------------------------------------------------------------------------

    def start(self, run, value, asynchronous):
        """Have run() done on the stream; the array for the current stream, or the Work of it."""
        nccl = self.nccl
        try:
            with nccl.gpu.active():
                captured, before = nccl.is_captured(), nccl.reached()
                with nccl.active():
                    nccl.wait_for(before)
                    run()
                    work = Started(self.nccl, self._latest, value, before, run)
        except nccl.errors as error:
            reason = f"{self._latest}: rank {self.rank}: NCCL failed: {error}"
            self.exchange.transport.abort(reason)
            raise CommunicationError(reason) from error
        finally:
            self._calling.end(None)
        if not captured:  # in a graph it takes place later, as often as the graph is replayed
            self._watch.add(work)
        return work if asynchronous else work.wait()

    def all_reduce(self, flat, op, order, wire, what):
        self._agree(what)
        if flat.size and self._adds(flat, order, wire):
            self.nccl.all_reduce(flat, op)
        elif flat.size and self.size > 1:
            self._all_reduce(flat, op, wire)

    def reduce_scatter(self, part, flat, op, order, wire, what):
        self._agree(what)
        if not part.size:
            return
        if self._adds(flat, order, wire):
            self.nccl.reduce_scatter(part, flat, op)
        else:
            bounds = [r * part.size for r in range(self.size + 1)]
            store(part, self._own_part(flat, bounds, op, wire, what))

    def all_gather(self, whole, flat, what):
        self._agree(what)
        if flat.size:
            self.nccl.all_gather(whole, flat)

    def all_to_all(self, whole, flat, what):
        self._agree(what)
        if flat.size:
            flat = device.copy(flat) if device.may_share_memory(whole, flat) else flat
            self.nccl.exchange(*(dict(enumerate(x.reshape(self.size, -1))) for x in (flat, whole)))

    def broadcast(self, flat, root, what):
        self._agree(what)
        if flat.size:
            self.nccl.broadcast(flat, root)

    # ---- sums in order -------------------------------------------------------------------------------------------

    def _adds(self, flat, order, wire):
        """Whether NCCL does the sum."""
        native = order == "native" and not wire and self.nccl.adds(flat.dtype)
        if not native and self.size > 1 and self.nccl.is_captured() and capturing.get() is None:
            raise StateError(
                f"{self._latest}: a graph would keep using memory that others get; within one take order='native', or "
                "capture it by minigrad.graph.capture"
            )
        return native

    def _all_reduce(self, flat, op, wire):
        n = self.size
        out = (lambda x: encoded(x, wire)) if wire else lambda x: x
        if flat.nbytes <= SMALL:  # the same cut as on the host, as a wire rounds the totals above it
            store(flat, self._total(list(self._gathered(out(flat)).reshape(n, -1)), op, wire))
            return
        step = -(-flat.size // n)
        bounds = [min(r * step, flat.size) for r in range(n + 1)]
        total = out(self._own_part(flat, bounds, op, wire, ""))
        part = device.empty((step,), total.dtype, like=total)
        part[: total.size] = total
        store(flat, decoded(self._gathered(part)[: flat.size], wire))

    def _gathered(self, part):
        whole = device.empty((self.size * part.size,), part.dtype, like=part)
        self.nccl.all_gather(whole, part)
        return whole

    def _swapped(self, what, part_of):
        own = part_of(self.rank)
        found = [own if rank == self.rank else device.empty_like(own) for rank in range(self.size)]
        peers = self.exchange.peers
        self.nccl.exchange({rank: part_of(rank) for rank in peers}, {rank: found[rank] for rank in peers})
        return found

    # ---- words between ranks -------------------------------------------------------------------------------------

    def _agree(self, what):
        """Make sure that all ranks do this, as far as they have not done it after the same call before."""
        step, history = (self._latest, what), zlib.crc32(what.encode(), self._history)
        self._count += 1
        if step not in self._agreed or self._count % OFTEN == 0:
            self._compare(what)
            self._agreed.add(step)
        self._latest, self._history, self._calling = what, history, Calling(what)
        self._watch.add(self._calling)
        if not self.nccl.connected:
            self._connect()

    def _compare(self, what):
        done = np.array([self._history], np.uint32)
        for rank, other in self._told(f"{what} by NCCL", done).items():
            if other != done.tobytes():
                reason = f"{what}: ranks {rank} and {self.rank} did other collectives on their GPUs before it"
                self.exchange.transport.abort(reason)
                raise DisagreementError(reason)

    def _told(self, what, payload):
        """{peer: bytes that it sent}, after what was begun on the host before."""
        found = {}
        swap = lambda: found.update(self.exchange.swap(what, lambda peer: payload))
        self.host.start(swap, None, False)
        return {rank: payload.tobytes() for rank, payload in found.items()}

    def _connect(self):
        """Make the group of GPUs. Errors: RuntimeError on every rank where two share a GPU but may not."""
        from ..device.nccl import identity, shares_gpus

        with self.nccl.gpu.active():
            mine = f"{self.nccl.address}\t{shares_gpus()}\t".encode() + (identity() if self.rank == 0 else b"")
        all_words = {
            self.rank: mine,
            **self._told(f"the first call of NCCL {self._version}", np.frombuffer(mine, np.uint8)),
        }
        addresses, sharing, keys = zip(*(all_words[r].split(b"\t", 2) for r in range(self.size)), strict=True)
        for rank, address in enumerate(addresses):
            first = addresses.index(address)
            if first < rank and b"False" in sharing:
                raise StateError(
                    f"{self._latest}: ranks {first} and {rank} are both on GPU {address.decode()}; wanted one GPU a "
                    "rank (or NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1), or take backend='host'"
                )
        self.nccl.connect(self.size, keys[0], self.rank)

    # ---- the end -------------------------------------------------------------------------------------------------

    def abort(self):
        """End what goes on, and wake whoever waits for this GPU."""
        self._watch.close()
        ending = threading.Thread(target=self.nccl.abort, daemon=True)  # it may wait for the GPU itself
        ending.start()
        ending.join(GRACE)

    def close(self):
        """End it after all that was begun."""
        super().close()
        self._watch.drain()
        self._watch.close()
        self.nccl.close()
