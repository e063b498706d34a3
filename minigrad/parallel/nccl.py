"""Collectives between GPUs by CuPy's NCCL, on a stream of their own beside the one that computes.

A collective waits, by an event, for what the caller's current stream was told before; wait() of its Work lets the
current stream go on after it. The host never waits for the GPU, and goes on at once.

Sums have one order, with the bits of the host: each rank gets one part of the array of all others, adds pairwise, and
all gather the parts. Under minigrad.deterministic(False) they are NCCL's own, which are faster, and drop NaN from the
largest and the smallest.

NCCL compares nothing between ranks, and a rank that waits in vain waits for ever. So ranks first tell one another what
they are about to do, by way of the host. What a training step does again and again is told once: two calls that
followed one another before need no word, but every so often, and with every word, the ranks compare all they did. A
collective in a graph of minigrad.graph.capture counts each time that the graph is launched. And a thread looks on
(nccl_watch.py): where a collective or such a graph is late or failed, it says which and ends the process. A graph that
somebody else captures is neither counted nor watched; drop it before its group ends, which waits for it in vain.
"""

import contextlib
import enum
import functools
import os
import platform
import threading
import warnings
import weakref
import zlib

import cupy
import numpy as np
from cupy.cuda import runtime

from minigrad_kernels.errors import StateError
from minigrad_kernels.toolchain.modes import capturing

from .. import device
from ..core.modes import is_deterministic
from .collectives import SMALL, HostCollectives
from .errors import CommunicationError, DisagreementError
from .nccl_watch import GRACE, Calling, Started, Watch, within

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of CuPy where the library is missing, which `version` says with an error
    from cupy.cuda import nccl

__all__ = ["Nccl", "NcclCollectives", "State", "version"]

OLDEST = 21801  # 2.18.1
SHARING = 23000  # 2.30.0: from there on several ranks may be told to share a GPU
OFTEN = 256  # calls after which the ranks compare in any case
URGENT = -1  # the priority of a stream whose kernels go first
PASSED, NOT_READY = 0, 600  # of cudaEventQuery
TYPES = {"b": "INT8", "B": "UINT8", "i": "INT32", "I": "UINT32", "l": "INT64", "L": "UINT64", "q": "INT64"}
TYPES |= {"Q": "UINT64", "e": "FLOAT16", "f": "FLOAT32", "d": "FLOAT64", "E": "BFLOAT16"}
OPS = {"sum": "SUM", "mean": "AVG", "max": "MAX", "min": "MIN"}


def version():
    """NCCL's version as a number: 23203 is 2.32.3.

    Errors  RuntimeError where NCCL is missing or too old
    """
    package = f"nvidia-nccl-cu{runtime.runtimeGetVersion() // 1000}"
    if not nccl.available:
        raise StateError(f"NCCL is not installed; pip install {package}, or take backend='host'")
    found = nccl.get_version()
    if found < OLDEST:
        raise StateError(f"NCCL is {found}, wanted {OLDEST} (2.18.1) or newer; pip install -U {package}")
    return found


class State(enum.Enum):
    """Where a rank of a group stands. What may follow:

    NEW     connect() makes it OPEN, end() ENDED
    OPEN    collectives; end() makes it ENDED, and that call alone tears the group down
    ENDED   nothing
    """

    NEW = "is not connected"
    OPEN = "is open"
    ENDED = "has ended"


class Nccl:
    """One GPU as a rank of a group: the few calls of NCCL, on flat arrays and on the stream. They return at once.

    stream  on which it communicates: it does not wait for others by itself, and goes before them where both could run
    graphs  those that captured a collective: NCCL keeps a group as long as they live
    """

    errors = getattr(nccl, "NcclError", ())

    def __init__(self, gpu):
        self.gpu, self.state, self.graphs = gpu, State.NEW, weakref.WeakSet()
        self._group, self._changing = None, threading.Lock()
        with gpu.active():
            self.stream = cupy.cuda.Stream(non_blocking=True, priority=URGENT)

    # ---- from the first call to the end ----------------------------------------------------------------------------

    @property
    def address(self):
        """Host and bus of the GPU, which tell it from all others."""
        return f"{platform.node()} {cupy.cuda.Device(self.gpu.number).pci_bus_id}"

    def connect(self, size, key, rank):
        """Wait, without a limit, for the other ranks that know the key."""
        with self.gpu.active():
            self._group = nccl.NcclCommunicator(size, key, rank)
        with self._changing:
            if self.state is State.NEW:
                self.state = State.OPEN

    @property
    def group(self):
        if self.state is not State.OPEN:
            raise CommunicationError(f"the group of GPUs {self.state.value}")
        return self._group

    def check(self):
        """Raise one of `errors` if something went wrong that no call could report."""
        with self._changing:  # the group must not go meanwhile
            if self.state is State.OPEN:
                self._group.check_async_error()

    def end(self, how, seconds):
        """Leave the group by "destroy", or by "abort" where others may be missing; wait for that only so long.

        Both wait for the graphs that captured a collective, so those are reset.
        """
        with self._changing:
            before, self.state = self.state, State.ENDED
        if before is State.OPEN:
            reset, leave = lambda: [graph.reset() for graph in list(self.graphs)], getattr(self._group, how)
            if how == "destroy":  # nothing goes on: the graphs go first, and at once
                within(seconds, self.gpu, reset)
                within(seconds, self.gpu, leave)
            else:  # an abort ends what graphs wait for, and waits for them
                within(seconds, self.gpu, leave, reset)

    # ---- streams and events ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def active(self):
        """What is done inside is done on the stream."""
        with self.gpu.active(), self.stream:
            yield

    def reached(self):
        """An event that ends when the current stream has come to this point."""
        return cupy.cuda.get_current_stream().record(cupy.cuda.Event(disable_timing=True))

    def wait_for(self, event):
        """Let the current stream go on only after an event."""
        cupy.cuda.get_current_stream().wait_event(event)

    def follow(self):
        """Let the current stream go on only after what the stream was told until now."""
        self.wait_for(self.stream.record(cupy.cuda.Event(disable_timing=True)))

    def has_passed(self, event):
        """Whether an event has ended. Errors: those of the GPU, of which CuPy's Event.done says nothing."""
        status = runtime.eventQuery(event.ptr)
        if status not in (PASSED, NOT_READY):
            raise runtime.CUDARuntimeError(status)
        return status == PASSED

    def is_captured(self):
        """Whether what is done on the current stream becomes part of a graph."""
        return cupy.cuda.get_current_stream().is_capturing()

    # ---- collectives -----------------------------------------------------------------------------------------------

    def call(self, name, sent, received, count, *codes):
        """A collective by the name that CuPy has for it, with its codes: element type, then op or root."""
        getattr(self.group, name)(sent.data.ptr, received.data.ptr, count, *codes, self.stream.ptr)

    def exchange(self, sent, received):
        """Send arrays to ranks while others come from there: {rank: array} of both; empty ones do not travel."""
        nccl.groupStart()
        try:
            for call, arrays in ((self.group.send, sent), (self.group.recv, received)):
                for rank, array in arrays.items():
                    if array.nbytes:
                        call(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, rank, self.stream.ptr)
        finally:
            nccl.groupEnd()


def _codes(array, op):
    return getattr(nccl, f"NCCL_{TYPES[array.dtype.char]}"), getattr(nccl, f"NCCL_{OPS[op]}")


class NcclCollectives(HostCollectives):
    """The collectives of one group on arrays of one GPU.

    host    does collectives of the same group on the host; their order and that of these is the same on all ranks
    gpu     the place of the GPU
    """

    def __init__(self, exchange, host, gpu):
        super().__init__(exchange)
        self._version, self.nccl, self.host = version(), Nccl(gpu), host
        self._agreed, self._latest, self._count, self._history = set(), "", 0, 0
        self._watch, self._calling, self._recorder = Watch(self.nccl, exchange), Calling(""), lambda: None

    # ---- calls -----------------------------------------------------------------------------------------------------

    def start(self, run, value, asynchronous):
        """Have run() done on the stream; the array for the current stream, or the Work of it."""
        nccl, recorder = self.nccl, capturing.get()
        try:
            with nccl.gpu.active():
                captured, before = nccl.is_captured(), nccl.reached()
                with nccl.active():
                    nccl.wait_for(before)
                    run()
                    work = Started(nccl, self._latest, value, before, nccl.reached(), run)
        except nccl.errors as error:
            reason = f"{self._latest}: rank {self.rank}: NCCL failed: {error}"
            self.exchange.transport.abort(reason)
            raise CommunicationError(reason) from error
        finally:
            self._calling.end(None)
        if not captured:
            self._watch.add(work)
        elif recorder is not None:
            self._join(recorder, run)
        return work if asynchronous else work.wait()

    def _join(self, recorder, run):
        """A collective takes place whenever a graph is launched: count it then, and have the launch watched."""
        recorder.keep(run)
        recorder.note(functools.partial(self._count_on, self._latest))
        if self._recorder() is not recorder:
            self._recorder = weakref.ref(recorder)
            self.nccl.graphs.add(recorder.graph)
            recorder.note(again=self.nccl.follow, after=self._launched)

    def _launched(self, graph):
        """Its collectives are on the stream of the launch, and those of other calls before and after them."""
        self.nccl.stream.wait_event(graph.ended)
        what = f"a graph, its last collective here {self._latest}"
        self._watch.add(Started(self.nccl, what, None, graph.begun, graph.ended, graph))

    def all_reduce(self, flat, op, what):
        self._agree(what)
        if flat.size and self._adds(flat):
            self.nccl.call("allReduce", flat, flat, flat.size, *_codes(flat, op))
        elif flat.size and self.size > 1:
            self._all_reduce(flat, op)

    def all_gather(self, whole, flat, what):
        self._agree(what)
        if flat.size:
            self.nccl.call("allGather", flat, whole, flat.nbytes, nccl.NCCL_UINT8)

    def broadcast(self, flat, root, what):
        self._agree(what)
        if flat.size:
            self.nccl.call("broadcast", flat, flat, flat.nbytes, nccl.NCCL_UINT8, root)

    # ---- sums in order ---------------------------------------------------------------------------------------------

    def _adds(self, flat):
        """Whether NCCL does the sum."""
        native = not is_deterministic() and flat.dtype.char in TYPES
        if not native and self.size > 1 and self.nccl.is_captured() and capturing.get() is None:
            raise StateError(
                f"{self._latest}: a graph would keep using memory that others get; capture it by "
                "minigrad.graph.capture, or add under minigrad.deterministic(False)"
            )
        return native

    def _all_reduce(self, flat, op):
        n = self.size
        if flat.nbytes <= SMALL:
            device.assign(flat, self._total(list(self._gathered(flat).reshape(n, -1)), op))
            return
        step = -(-flat.size // n)
        bounds = [min(r * step, flat.size) for r in range(n + 1)]
        total = self._own_part(flat, bounds, op, "")
        part = device.empty((step,), total.dtype, like=total)
        part[: total.size] = total
        device.assign(flat, self._gathered(part)[: flat.size])

    def _gathered(self, part):
        whole = device.empty((self.size * part.size,), part.dtype, like=part)
        self.nccl.call("allGather", part, whole, part.nbytes, nccl.NCCL_UINT8)
        return whole

    def _swapped(self, what, part_of):
        own = part_of(self.rank)
        found = [own if rank == self.rank else device.empty_like(own) for rank in range(self.size)]
        peers = self.exchange.peers
        self.nccl.exchange({rank: part_of(rank) for rank in peers}, {rank: found[rank] for rank in peers})
        return found

    # ---- words between ranks ---------------------------------------------------------------------------------------

    def _agree(self, what):
        """Make sure that all ranks call this, and that they are connected."""
        self._count_on(what)
        self._calling = Calling(what)
        self._watch.add(self._calling)
        if self.nccl.state is State.NEW:
            self._connect()

    def _count_on(self, what):
        """Make sure that all ranks do this next, as far as they have not done it after the same call before."""
        step, history = (self._latest, what), zlib.crc32(what.encode(), self._history)
        self._count += 1
        if step not in self._agreed or self._count % OFTEN == 0:
            self._compare(what)
            self._agreed.add(step)
        self._latest, self._history = what, history

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
        sharing = version() >= SHARING and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
        key = nccl.get_unique_id() if self.rank == 0 else b""
        mine = f"{self.nccl.address}\t{sharing}\t".encode() + key
        others = self._told(f"the first call of NCCL {self._version}", np.frombuffer(mine, np.uint8))
        found = [(mine if r == self.rank else others[r]).split(b"\t", 2) for r in range(self.size)]
        addresses, sharing, keys = zip(*found, strict=True)
        for rank, address in enumerate(addresses):
            first = addresses.index(address)
            if first < rank and b"False" in sharing:
                raise StateError(
                    f"{self._latest}: ranks {first} and {rank} are both on GPU {address.decode()}; wanted one GPU a "
                    "rank (or NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1), or take backend='host'"
                )
        self.nccl.connect(self.size, keys[0], self.rank)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def abort(self):
        """End what goes on, and wake whoever waits for this GPU."""
        self._watch.close()
        self.nccl.end("abort", GRACE)

    def close(self):
        """End it after all that was begun."""
        super().close()
        self._watch.drain()
        self._watch.close()
        self.nccl.end("destroy", self.exchange.timeout)
