"""Communicator: what ranks do together.

In every collective each rank tells every other what it is about to do, so calls that do not fit end with an error on
every rank, not in a hang or in the wrong memory. Sums are taken pairwise in the order of ranks, with the same bits on
every rank, in every run and by every transport; on GPUs under minigrad.deterministic(False) as NCCL likes.

Arrays are those of any device, or leaf Tensors, and fill their memory without gaps. Those of GPUs travel by NCCL (see
nccl.py), or by way of the host.

op      "sum", "mean", "max" or "min"
label   stands in errors
asynchronous    return a Work at once, whose wait() gives the array; until then it must not be touched

Errors  DisagreementError for calls that differ, DeadlineError after `timeout` seconds, PeerLost for a rank that is
        gone, all on every rank; TypeError and ValueError for an array or option that cannot be, before anything is sent
Source  Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH"
        (reduce-scatter, then all-gather: each rank sends and receives 2 (n - 1) / n of the bytes)
"""

import contextvars
import itertools
import pickle

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain.modes import capturing

from ..core.modes import is_deterministic
from ..device import is_floating, place_of
from .collectives import CONTROL, OPS, HostCollectives, flat_of, words
from .errors import DisagreementError

current: "contextvars.ContextVar[Communicator | None]" = contextvars.ContextVar("world", default=None)


class Communicator:
    """All ranks as one of them sees them. Leaving a `with` block ends it, by abort() where an exception leaves.

    rank, size  of this process, or thread
    timeout     seconds for one operation
    backend     who does collectives of arrays on GPUs: "nccl", or "host" where they travel by way of the host; default
                that of the transport
    models      how many there are whose gradients are exchanged here
    """

    def __init__(self, transport, timeout=60.0, backend=None):
        self.transport, self.timeout = transport, timeout
        self.rank, self.size, self.backend = transport.rank, transport.size, backend or transport.backend
        self.closed, self.models = False, 0
        self.host, self._on_gpus = HostCollectives(transport, timeout), {}

    # ---- collectives ---------------------------------------------------------------------------------------------

    def all_reduce(self, array, op="sum", *, label="", asynchronous=False):
        """Replace the array on every rank by the sum over ranks, or another op.

        Math    x = x_0 + x_1 + ... + x_(n-1), or this over n, the largest, the smallest
        """
        flat, order = flat_of("all_reduce", "array", array), self._order_of(array, op)
        what = f"all_reduce({words(array)}, {op}, {order}, label={label})"
        return self._start(flat, lambda how: how.all_reduce(flat, op, what), array, asynchronous)

    def all_gather(self, out, array, *, label="", asynchronous=False):
        """Give every rank the arrays of all, one after another in the order of ranks.

        Shapes  out has `size` times the elements of array, which may be its own part of out
        """
        whole, flat = flat_of("all_gather", "out", out), flat_of("all_gather", "array", array, False)
        if whole.size != self.size * flat.size or whole.dtype != flat.dtype:
            got = f"out has {whole.size} elements {whole.dtype}, array {flat.size} elements {flat.dtype}"
            raise ShapeError(f"all_gather: {got}; wanted {self.size} times as many, of one type")
        what = f"all_gather({words(array)}, label={label})"
        return self._start(flat, lambda how: how.all_gather(whole, flat, what), out, asynchronous)

    def broadcast(self, array, root=0, *, label="", asynchronous=False):
        """Replace the array on every rank by that of the root."""
        self.check_rank("broadcast", "root", root)
        flat = flat_of("broadcast", "array", array)
        what = f"broadcast({words(array)}, root={root}, label={label})"
        return self._start(flat, lambda how: how.broadcast(flat, root, what), array, asynchronous)

    def barrier(self):
        """Wait for all ranks."""
        self.host.start(lambda: self.host.gathered("barrier()", b""), None, False)

    def _start(self, flat, run, value, asynchronous):
        """Do run(collectives) for an array of this kind: now, or beside the caller after what was begun before."""
        collectives = self.collectives(flat)
        if collectives is not self.host:
            return collectives.start(lambda: run(collectives), value, asynchronous)
        if self.size > 1 and (recorder := capturing.get()) is not None:
            recorder.refuse("goes by way of the host, once for a graph and not each time that it is launched")
        lent = place_of(flat).lent()

        def on_callers_stream():
            with lent():
                run(collectives)

        return collectives.start(on_callers_stream, value, asynchronous)

    def collectives(self, flat):
        """What does the collectives on arrays like this one. Errors: RuntimeError where NCCL is wanted and missing."""
        there = place_of(flat)
        if self.backend == "host" or not there.name.startswith("cuda"):
            return self.host
        if there not in self._on_gpus:
            from .nccl import NcclCollectives

            self._on_gpus[there] = NcclCollectives(self.host, there)
        return self._on_gpus[there]

    # ---- objects --------------------------------------------------------------------------------------------------

    def all_gather_object(self, value):
        """What each rank gave, in the order of ranks: any values that can be pickled."""
        return list(map(pickle.loads, self.host.gathered("all_gather_object()", pickle.dumps(value), CONTROL)))

    def broadcast_object(self, value=None, root=0):
        """What the root gave."""
        self.check_rank("broadcast_object", "root", root)
        return self.all_gather_object(value if self.rank == root else None)[root]

    def agree(self, op, entries):
        """Have all ranks confirm that they hold the same texts under the same names, in the same order.

        Errors  DisagreementError on every rank, with the first entry that differs, as two ranks have it
        """
        first, *others = self.all_gather_object([f"{name} is {text}" for name, text in entries.items()])
        for rank, theirs in enumerate(others, 1):
            for a, b in itertools.zip_longest(first, theirs, fillvalue="nothing"):
                if a != b:
                    raise DisagreementError(f"{op}: {a} on rank 0, but {b} on rank {rank}; wanted the same on all")

    # ---- ends ----------------------------------------------------------------------------------------------------

    def abort(self, reason):
        """End communication for all ranks, each of which gets a CommunicationError with the reason."""
        self.transport.abort(f"rank {self.rank} ended: {reason}")
        for collectives in self._on_gpus.values():
            collectives.abort()

    def close(self):
        """End it in good order, after all that was begun."""
        self.closed = True
        for collectives in (*self._on_gpus.values(), self.host):
            collectives.close()
        self.transport.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            self.abort(f"{kind.__name__}: {error}")
        self.close()

    # ---- checks --------------------------------------------------------------------------------------------------

    def _order_of(self, array, op):
        """In which order ranks are added, in a word, once array and op are found to be possible."""
        if op not in OPS:
            raise ShapeError(f"all_reduce: op is {op!r}, wanted one of {', '.join(map(repr, OPS))}")
        if array.dtype.kind == "b" or (op == "mean" and not is_floating(array.dtype)):
            raise KindError(f"all_reduce: array has elements {array.dtype}, which have no {op}; convert it before")
        return "fixed" if is_deterministic() else "native"

    def check_rank(self, op, name, rank):
        """Errors: ValueError for what is no rank."""
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self.size:
            raise ShapeError(f"{op}: {name} is {rank!r}, wanted a rank from 0 to {self.size - 1}")
