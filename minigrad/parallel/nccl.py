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
(nccl_watch.py): where a collective or such a graph is late or failed, it says which and ends the process. Graphs
that somebody else captures are neither counted nor watched, and want minigrad.deterministic(False), as sums in order
take memory that others get after them; drop them before their group ends, which waits for them in vain.
"""

import functools
import os
import platform
import threading
import warnings
import weakref
import zlib
from types import SimpleNamespace

import cupy
from cupy.cuda import runtime

from minigrad_kernels.errors import StateError
from minigrad_kernels.toolchain.modes import capturing

from .. import device
from ..core.modes import is_deterministic
from .collectives import HostCollectives
from .errors import CommunicationError, DisagreementError
from .nccl_watch import GRACE, Started, Watch, within

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of CuPy where the library is missing, which `version` says with an error
    from cupy.cuda import nccl

SHARING = 23000  # 2.30.0: from there on several ranks may be told to share a GPU
OFTEN = 256  # calls after which the ranks compare in any case
URGENT = -1  # the priority of a stream whose kernels go first
PASSED, NOT_READY = 0, 600  # of cudaEventQuery


def version():
    """NCCL's version as a number: 23203 is 2.32.3.

    Errors  RuntimeError where NCCL is missing
    """
    if not nccl.available:
        package = f"nvidia-nccl-cu{runtime.runtimeGetVersion() // 1000}"
        raise StateError(f"NCCL is not installed; pip install {package}, or say world.backend = 'host'")
    return nccl.get_version()


def _code(name):
    """NCCL's number of an element type or an op; None if it has none."""
    return getattr(nccl, f"NCCL_{name.upper()}", None)


class NcclCollectives(HostCollectives):
    """The collectives of one group on arrays of one GPU, which is a rank of it, and the stream on which they work.

    host    does collectives of the same group on the host; their order and that of these is the same on all ranks
    gpu     the place of the GPU
    stream  it does not wait for others by itself, and goes before them where both could run
    graphs  those that captured a collective: NCCL keeps a group as long as they live
    """

    def __init__(self, host, gpu):
        super().__init__(host.transport, host.timeout)
        self._version, self.host, self.gpu, self.graphs = version(), host, gpu, weakref.WeakSet()
        self._group, self._ended, self._changing = None, False, threading.Lock()
        self._agreed, self._latest, self._count, self._history = set(), "", 0, 0
        with gpu.active():
            self.stream = cupy.cuda.Stream(non_blocking=True, priority=URGENT)
        self._watch, self._calling, self._recorder = Watch(self), SimpleNamespace(), lambda: None

    # ---- calls -----------------------------------------------------------------------------------------------------

    def start(self, run, value, asynchronous):
        """Have run() done on the stream; the array for the current stream, or the Work of it."""
        recorder = capturing.get()
        try:
            with self.gpu.active():
                captured, before = cupy.cuda.get_current_stream().is_capturing(), self.reached()
                with self.stream:
                    self.wait_for(before)
                    run()
                    work = Started(self, self._latest, value, before, self.reached(), run)
        except getattr(nccl, "NcclError", ()) as error:
            reason = f"{self._latest}: rank {self.rank}: NCCL failed: {error}"
            self.transport.abort(reason)
            raise CommunicationError(reason) from error
        finally:
            self._calling.done = True
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
            self.graphs.add(recorder.graph)
            recorder.note(again=self.follow, after=self._launched)

    def _launched(self, graph):
        """Its collectives are on the stream of the launch, and those of other calls before and after them."""
        self.stream.wait_event(graph.ended)
        what = f"a graph, its last collective here {self._latest}"
        self._watch.add(Started(self, what, None, graph.begun, graph.ended, graph))

    def all_reduce(self, flat, op, what):
        self._agree(what)
        if flat.size and not is_deterministic() and _code(flat.dtype.name) is not None:
            codes = _code(flat.dtype.name), _code("avg" if op == "mean" else op)
            self._call("allReduce", flat, flat, flat.size, *codes)
        elif flat.size and self.size > 1:
            device.assign(flat, self._summed(flat, op, what))

    def all_gather(self, whole, flat, what):
        self._agree(what)
        if flat.size:
            self._call("allGather", flat, whole, flat.nbytes, nccl.NCCL_UINT8)

    def broadcast(self, flat, root, what):
        self._agree(what)
        if flat.size:
            self._call("broadcast", flat, flat, flat.nbytes, nccl.NCCL_UINT8, root)

    def _call(self, name, sent, received, count, *codes):
        """A collective by the name that CuPy has for it, with its codes: element type, then op or root."""
        getattr(self.group, name)(sent.data.ptr, received.data.ptr, count, *codes, self.stream.ptr)

    # ---- sums in order ---------------------------------------------------------------------------------------------

    def _whole(self, part, what):
        whole = device.empty((self.size * part.size,), part.dtype, like=part)
        self._call("allGather", part, whole, part.nbytes, nccl.NCCL_UINT8)
        return whole

    def _swapped(self, what, part_of):
        own = part_of(self.rank)
        found = [own if rank == self.rank else device.empty_like(own) for rank in range(self.size)]
        nccl.groupStart()
        try:
            for call, array_of in ((self.group.send, part_of), (self.group.recv, found.__getitem__)):
                for peer in self.peers:
                    if (array := array_of(peer)).nbytes:  # empty ones do not travel
                        call(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, peer, self.stream.ptr)
        finally:
            nccl.groupEnd()
        return found

    # ---- words between ranks ---------------------------------------------------------------------------------------

    def _agree(self, what):
        """Make sure that all ranks call this, and that they are connected."""
        self._count_on(what)
        key = self._key() if self._group is None and not self._ended else None
        # It may not come back: the first calls wait for the other ranks on the host.
        self._calling = SimpleNamespace(what=what, begun=True, done=False)
        self._watch.add(self._calling)
        if key is not None:
            self.connect(key)

    def _count_on(self, what):
        """Make sure that all ranks do this next, as far as they have not done it after the same call before."""
        step, history = (self._latest, what), zlib.crc32(what.encode(), self._history)
        self._count += 1
        if step not in self._agreed or self._count % OFTEN == 0:
            done = self._told(f"{what} by NCCL", self._history.to_bytes(4))
            rank = next((rank for rank, other in enumerate(done) if other != done[0]), None)
            if rank is not None:
                reason = f"{what}: ranks 0 and {rank} did other collectives on their GPUs before it"
                self.transport.abort(reason)
                raise DisagreementError(reason)
            self._agreed.add(step)
        self._latest, self._history = what, history

    def _told(self, what, message):
        """The bytes that each rank gave, after what was begun on the host before."""
        found = []
        self.host.start(lambda: found.extend(self.host.gathered(what, message)), None, False)
        return found

    def _key(self):
        """What rank 0 calls the group. Errors: RuntimeError on every rank where two share a GPU but may not."""
        sharing = version() >= SHARING and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
        address = f"{platform.node()} {cupy.cuda.Device(self.gpu.number).pci_bus_id}\t".encode()
        mine = address + (nccl.get_unique_id() if self.rank == 0 else b"")
        found = [one.split(b"\t", 1) for one in self._told(f"the first call of NCCL {self._version}", mine)]
        addresses, keys = zip(*found, strict=True)
        if len({*addresses}) < self.size and not sharing:
            where = f"the ranks are on GPUs {', '.join(map(bytes.decode, addresses))}; wanted one GPU a rank"
            raise StateError(f"{self._latest}: {where}, or NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1")
        return keys[0]

    # ---- the group -------------------------------------------------------------------------------------------------

    def connect(self, key):
        """Wait, without a limit, for the other ranks that know the key."""
        with self.gpu.active():
            group = nccl.NcclCommunicator(self.size, key, self.rank)
        with self._changing:
            self._group = None if self._ended else group

    @property
    def group(self):
        if self._group is None:
            raise CommunicationError("the group of GPUs has ended")
        return self._group

    def check(self):
        """Raise NCCL's error if something went wrong that no call could report."""
        with self._changing:  # the group must not go meanwhile
            if self._group is not None:
                self._group.check_async_error()

    def _end(self, how, seconds):
        """Leave the group by "destroy", or by "abort" where others may be missing; wait for that only so long.

        Both wait for the graphs that captured a collective, so those are reset meanwhile: an abort ends what they wait
        for. The first call alone tears the group down.
        """
        self._watch.close()
        with self._changing:
            group, self._group, self._ended = self._group, None, True
        if group is not None:
            within(seconds, self.gpu, getattr(group, how), lambda: [graph.reset() for graph in list(self.graphs)])

    def abort(self):
        """End what goes on, and wake whoever waits for this GPU."""
        self._end("abort", GRACE)

    def close(self):
        """End it after all that was begun."""
        self._watch.drain()
        self._end("destroy", self.timeout)

    # ---- streams and events ----------------------------------------------------------------------------------------

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
