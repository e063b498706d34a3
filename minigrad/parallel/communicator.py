"""Communicator: what a group of ranks does together.

In every collective each rank tells every other what it is about to do, so calls that do not fit end with an error on
every rank, not in a hang or in the wrong memory. Sums are taken pairwise in the order of ranks (see sums.py), with the
same bits on every rank, in every run and by every transport.

Arrays are those of any device, or leaf Tensors, and fill their memory without gaps. Those of GPUs travel by NCCL (see
nccl.py), or by way of the host.

op      "sum", "mean", "max" or "min"
order   "fixed": pairwise in the order of ranks; "native": as the library underneath likes it, which may be faster and
        may have other bits elsewhere; None: fixed under minigrad.deterministic(True), which is the default
wire    "float16" or "bfloat16": float32 numbers travel in 16 bits and are added in float32; None: as they are
label   stands in errors
asynchronous    return a Work at once, whose wait() gives the array; until then it must not be touched

Errors  DisagreementError for calls that differ, DeadlineError after `timeout` seconds, PeerLost for a rank that is
        gone, all on every rank; TypeError and ValueError for an array or option that cannot be, before anything is sent
Source  Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH"
        (reduce-scatter, then all-gather: each rank sends and receives 2 (n - 1) / n of the bytes)
"""

import contextvars

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.capture import capturing

from ..device import is_floating, place_of
from ..modes import is_deterministic
from .arrays import flat_of, on_host, store, words
from .collectives import HostCollectives
from .errors import DisagreementError
from .exchange import CHANNELS, CONTROL, FIRST_TAG, GROUPS, NOTHING, Exchange
from .sums import OPS, WIRES
from .work import Sent

__all__ = ["Communicator", "current"]

ORDERS = ("fixed", "native", None)

current: "contextvars.ContextVar[Communicator | None]" = contextvars.ContextVar("world", default=None)


class Communicator:
    """A group of ranks as one of them sees it. Leaving a `with` block ends it, by abort() where an exception leaves.

    rank, size  of this process, or thread, in the group
    timeout     seconds for one operation
    backend     who does collectives of arrays on GPUs: "nccl", or "host" where they travel by way of the host; default
                that of the transport
    """

    def __init__(self, transport, members=None, group=0, timeout=60.0, backend=None):
        if members is None:
            if transport.taken:
                raise StateError("Communicator: the transport has one of all ranks already; use that, or its split()")
            transport.taken, members = True, range(transport.size)
        self.transport = transport
        self.exchange = Exchange(transport, members, group, timeout)
        self.rank, self.size = self.exchange.rank, self.exchange.size
        self.backend, self._whole, self._parts = backend or transport.backend, None, []
        self.closed, self._models = False, 0
        self._on_host, self._on_gpus = HostCollectives(self.exchange), {}

    @property
    def timeout(self):
        return self.exchange.timeout

    def __repr__(self):
        return f"<{self.transport.name} communicator, rank {self.rank} of {self.size}>"

    # ---- collectives ---------------------------------------------------------------------------------------------

    def all_reduce(self, array, op="sum", *, order=None, wire=None, label="", asynchronous=False):
        """Replace the array on every rank by the sum over ranks, or another op.

        Math    x = x_0 + x_1 + ... + x_(n-1), or this over n, the largest, the smallest
        """
        flat, order = flat_of("all_reduce", "array", array), self._checked("all_reduce", array, op, order, wire)
        what = f"all_reduce({words(array)}, {op}, {order}, wire={wire}, label={label})"
        return self._start(flat, lambda how: how.all_reduce(flat, op, order, wire, what), array, asynchronous)

    def reduce_scatter(self, out, array, op="sum", *, order=None, wire=None, label="", asynchronous=False):
        """Give each rank its part of the sum over ranks: of `size` equal parts of the array, in the order of memory.

        Shapes  out has 1 / size of the elements of array, which may be that very part of it
        """
        flat, part = flat_of("reduce_scatter", "array", array, False), flat_of("reduce_scatter", "out", out)
        order = self._checked("reduce_scatter", array, op, order, wire)
        self._check_parts("reduce_scatter", "array", flat, "out", part)
        what = f"reduce_scatter({words(array)}, {op}, {order}, wire={wire}, label={label})"
        return self._start(flat, lambda how: how.reduce_scatter(part, flat, op, order, wire, what), out, asynchronous)

    def all_gather(self, out, array, *, label="", asynchronous=False):
        """Give every rank the arrays of all, one after another in the order of ranks.

        Shapes  out has `size` times the elements of array, which may be its own part of out
        """
        whole, flat = flat_of("all_gather", "out", out), flat_of("all_gather", "array", array, False)
        self._check_parts("all_gather", "out", whole, "array", flat)
        what = f"all_gather({words(array)}, label={label})"
        return self._start(flat, lambda how: how.all_gather(whole, flat, what), out, asynchronous)

    def broadcast(self, array, root=0, *, label="", asynchronous=False):
        """Replace the array on every rank by that of the root."""
        self._check_rank("broadcast", "root", root)
        flat = flat_of("broadcast", "array", array)
        what = f"broadcast({words(array)}, root={root}, label={label})"
        return self._start(flat, lambda how: how.broadcast(flat, root, what), array, asynchronous)

    def barrier(self):
        """Wait for all ranks."""
        self._on_host.start(lambda: self.exchange.swap("barrier()", lambda peer: NOTHING), None, False)

    def _start(self, flat, run, value, asynchronous):
        """Do run(collectives) for an array of this kind: now, or beside the caller after what was begun before."""
        collectives = self.collectives(flat)
        if collectives is not self._on_host:
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
            return self._on_host
        if there not in self._on_gpus:
            from .nccl import NcclCollectives

            self._on_gpus[there] = NcclCollectives(self.exchange, self._on_host, there)
        return self._on_gpus[there]

    # ---- from one rank to another --------------------------------------------------------------------------------

    def send(self, array, to, tag=0):
        """Send an array to a rank, by way of the host; returns a Work, after whose wait() the array may change."""
        self._check_message("send", "to", to, tag)
        flat = on_host(flat_of("send", "array", array, False))
        return Sent(self.exchange.post(to, tag, words(array), flat), array, self.timeout)

    def recv(self, out, source, tag=0):
        """Write the next array that a rank sent with this tag into `out`, of its shape and type; returns out.

        Errors  DisagreementError if what comes has another shape or element type
        """
        self._check_message("recv", "source", source, tag)
        flat = flat_of("recv", "out", out)
        what, payload = self.exchange.take(source, tag)
        if what != words(out):
            error = DisagreementError(f"recv: rank {source} sent {what}, but out on rank {self.rank} is {words(out)}")
            self.transport.abort(str(error))
            raise error
        store(flat, payload.view(flat.dtype))
        return out

    # ---- words ---------------------------------------------------------------------------------------------------

    def all_gather_bytes(self, message):
        """The bytes that each rank gave, in the order of ranks; their lengths may differ."""
        payload = np.frombuffer(message, np.uint8)
        found = self.exchange.swap("all_gather_bytes()", lambda peer: payload, CONTROL)
        return [message if r == self.rank else found[r].tobytes() for r in range(self.size)]

    def broadcast_bytes(self, message=b"", root=0):
        """The bytes of the root."""
        self._check_rank("broadcast_bytes", "root", root)
        return self.all_gather_bytes(message if self.rank == root else b"")[root]

    def agree(self, op, entries):
        """Have all ranks confirm that they hold the same texts under the same names, in the same order.

        Errors  DisagreementError on every rank, naming the first entry that differs, with both ranks and texts
        """
        mine = "\n".join(f"{name}\t{text}" for name, text in entries.items())
        others = [message.decode() for message in self.all_gather_bytes(mine.encode())]
        for rank, theirs in enumerate(others):
            if theirs != others[0]:
                first, second = (dict(line.split("\t", 1) for line in t.splitlines()) for t in (others[0], theirs))
                names = [*first, *(name for name in second if name not in first)]
                name = next((n for n in names if first.get(n) != second.get(n)), None)
                if name is None:
                    raise DisagreementError(
                        f"{op}: the order is {', '.join(first)} on rank 0 and {', '.join(second)} on rank {rank}; "
                        "wanted the same on all"
                    )
                raise DisagreementError(
                    f"{op}: {name} is {first.get(name, 'absent')} on rank 0 and {second.get(name, 'absent')} on rank "
                    f"{rank}; wanted the same on all"
                )

    # ---- groups, ends --------------------------------------------------------------------------------------------

    def split(self, color, key=None):
        """A Communicator of the ranks that give the same color, ordered by key, then by rank; None for color None."""
        key = self.rank if key is None else key
        if isinstance(key, bool) or not isinstance(key, int):
            raise KindError(f"split: key is {key!r}, wanted an integer or None")
        if isinstance(color, bool) or not isinstance(color, int | str | tuple | None):
            raise KindError(f"split: color is {color!r}, wanted an integer, a text, a tuple of such, or None")
        mine = f"{self.transport.groups}|{key}|{color!r}"
        entries = [text.decode().split("|", 2) for text in self.all_gather_bytes(mine.encode())]
        group = max(int(number) for number, _, _ in entries)
        if group >= GROUPS:
            raise StateError(
                f"split: this would be group {group + 1}, and {GROUPS} are possible; use those made before"
            )
        self.transport.groups = group + 1
        if color is None:
            return None
        ranks = sorted(
            (r for r in range(self.size) if entries[r][2] == repr(color)), key=lambda r: (int(entries[r][1]), r)
        )
        members = [self.exchange.members[r] for r in ranks]
        part = type(self)(self.transport, members, group, self.exchange.seconds, self.backend)
        part._whole = self._whole or self
        part._whole._parts.append(part)
        return part

    def count_model(self):
        """The number of a model whose gradients are exchanged here, in the order in which they were wrapped."""
        self._models += 1
        return self._models

    def abort(self, reason):
        """End communication for all ranks, each of which gets a CommunicationError with the reason."""
        self.transport.abort(f"rank {self.exchange.members[self.rank]} ended: {reason}")
        whole = self._whole or self
        for one in (whole, *whole._parts):
            for collectives in one._on_gpus.values():
                collectives.abort()

    def close(self):
        """End it in good order, after all that was begun, and all groups that split() made; such a group ends alone."""
        self.closed = True
        for part in self._parts:
            part.close()
        for collectives in (*self._on_gpus.values(), self._on_host):
            collectives.close()
        if not self.exchange.group:
            self.transport.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            self.abort(f"{kind.__name__}: {error}")
        self.close()

    # ---- checks --------------------------------------------------------------------------------------------------

    def _checked(self, name, array, op, order, wire):
        """The order of the sum, once all options are found to be possible."""
        for option, value, known in (("op", op, OPS), ("order", order, ORDERS), ("wire", wire, (*WIRES, None))):
            if value not in known:
                raise ShapeError(f"{name}: {option} is {value!r}, wanted one of {', '.join(map(repr, known))}")
        dtype = array.dtype
        if dtype.kind == "b" or (op == "mean" and not is_floating(dtype)):
            raise KindError(f"{name}: array has elements {dtype}, which have no {op}; convert it before")
        if wire and dtype != np.float32:
            raise KindError(f"{name}: wire is {wire!r} for elements {dtype}, wanted float32")
        return order or ("fixed" if is_deterministic() else "native")

    def _check_parts(self, op, name, whole, part_name, part):
        if whole.size != self.size * part.size or whole.dtype != part.dtype:
            raise ShapeError(
                f"{op}: {name} has {whole.size} elements {whole.dtype}, {part_name} {part.size} elements "
                f"{part.dtype}; wanted {self.size} times as many, one part a rank, of one type"
            )

    def _check_rank(self, op, name, rank):
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self.size:
            raise ShapeError(f"{op}: {name} is {rank!r}, wanted a rank from 0 to {self.size - 1}")

    def _check_message(self, op, name, rank, tag):
        self._check_rank(op, name, rank)
        if rank == self.rank:
            raise ShapeError(f"{op}: {name} is {rank}, which is this rank itself; wanted another")
        if not isinstance(tag, int) or not 0 <= tag < CHANNELS - FIRST_TAG:
            raise ShapeError(f"{op}: tag is {tag!r}, wanted an integer from 0 to {CHANNELS - FIRST_TAG - 1}")
