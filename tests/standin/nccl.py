"""cupy.cuda.nccl: ranks that are threads of this process, whose collectives move bytes and are noted.

A call waits for the same call of all ranks and then does it at once; what the real one would do with calls that differ
(hang, or write where it should not) is refused here, as are addresses outside of memory, of another device, memory that
two arguments share where they must not, streams of another device, and sends outside of a group.
"""

import functools
import os
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np

from .graphs import capturing, noted
from .machine import current, mark, owner_at
from .names import known

PATIENCE = 10.0  # seconds for all ranks to come
KEY = 128  # bytes
TYPES = {0: "b", 1: "B", 2: "i", 3: "I", 4: "q", 5: "Q", 6: "e", 7: "f", 8: "d"}
REDUCED = {0: np.add, 2: np.maximum, 3: np.minimum, 4: np.add}
AVERAGE = 4
WORDS = {
    4: "NCCL_ERROR_INVALID_ARGUMENT: invalid argument (run with NCCL_DEBUG=WARN for details)",
    6: "NCCL_ERROR_REMOTE_ERROR: remote process exited or there was a network error",
}


class NcclError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__(WORDS[status])


def state(machine=None):
    """What a machine, the current one without, knows of NCCL.

    calls       in order, what each call asked for: name, rank, stream, whether it was grouped; sent and received, the
                addresses; count in elements of a type; op; peer, the root or the other rank
    version     what get_version gives
    error       what check_async_error reports, 0 for nothing
    absent      whether from now on calls wait in vain, as for a rank that does not come: their streams are endless then
    groups      a Meeting by key
    """
    return (machine or current()).nccl


class _Meeting:
    """The ranks of a group: what each of them brought to each step."""

    def __init__(self):
        self.changed, self.steps, self.mail = threading.Condition(), {}, {}

    def all_bring(self, step, rank, size, thing, do):
        """Waits until all ranks brought a thing to a step; the last one does them together."""
        with self.changed:
            brought = self.steps.setdefault(step, {})
            brought[rank] = thing
            if len(brought) == size:
                try:
                    brought["result"] = None
                    do([brought[r] for r in range(size)])
                except Exception as error:
                    brought["result"] = error
                self.changed.notify_all()
            elif not self.changed.wait_for(lambda: "result" in brought, PATIENCE):
                raise TimeoutError(f"stand-in: rank {rank} waits for others in {thing}")
        if brought["result"] is not None:
            raise brought["result"]


_group = threading.local()


def group_start():
    _group.calls = []


def group_end():
    """All that is sent leaves, then what comes is received."""
    calls, _group.calls = getattr(_group, "calls", None), None
    for _, deliver in sorted(calls, key=lambda call: call[0] != "send"):
        deliver()


class NcclCommunicator:
    def __init__(self, ndev, commId, rank, config=None):
        if commId not in state().groups or not 0 <= rank < ndev:
            raise NcclError(4)
        self._rank, self._size, self._device = rank, ndev, current().device
        self._meeting, self._step, self.comm, self.graphs = state().groups[commId], 0, 1, weakref.WeakSet()
        self._meet(rank, lambda ranks: None)

    ending = False
    rank_id = lambda self: self._rank

    def _meet(self, thing, do):
        self._step += 1
        self._meeting.all_bring(self._step, self._rank, self._size, thing, do)

    # ---- one call ------------------------------------------------------------------------------------------------

    def _noted(self, name, stream=0, **words):
        if not (self.comm and 0 <= words.get("peer", 0) < self._size):
            raise NcclError(4)
        machine, grouped = current(), getattr(_group, "calls", None) is not None
        if stream and machine.streams.get(stream) != self._device:
            raise ValueError(f"stand-in: {name} on stream {stream}, which is none of device {self._device}")
        words = {"op": None, "peer": None} | words
        call = SimpleNamespace(name=name, rank=self._rank, stream=stream, grouped=grouped, **words)
        with machine.lock:
            state().calls.append(call)
        return call

    def _bytes(self, call, address, count):
        """The bytes of an argument."""
        size = count * (2 if call.type == 9 else np.dtype(TYPES[call.type]).itemsize)
        owner, first = owner_at(address)
        if owner is None or first < 0 or first + size > owner.nbytes or not size:
            raise ValueError(f"stand-in: {call.name} of {size} bytes at {address:#x}, where no such memory is")
        if owner.home != self._device:
            raise ValueError(f"stand-in: {call.name} on device {self._device} of memory of device {owner.home}")
        return owner[first : first + size]

    def _do(self, call, arrays, run):
        """Run a call, or have a graph do that, which then keeps the group."""

        def unless_in_vain():
            if state().absent:
                current().endless.add(current().stream(call.stream)[1])
            else:
                run()

        if (capture := capturing(call.stream)) is not None:
            capture.groups.add(self)
        if not noted(call.name, unless_in_vain, arrays, call.stream):
            unless_in_vain()

    def _together(self, name, sendbuf, recvbuf, count, datatype, stream, do, times=1, **words):
        """A collective: do(what each rank sent) gives what all receive, `times` as much as one sends, in bytes."""
        words |= {"sent": sendbuf, "received": recvbuf, "count": count, "type": datatype}
        call = self._noted(name, stream, **words)
        sent, received = self._bytes(call, sendbuf, count), self._bytes(call, recvbuf, times * count)
        low, high = sorted(((sendbuf, sent.nbytes), (recvbuf, received.nbytes)))
        in_place = sendbuf == recvbuf or (times > 1 and sendbuf == recvbuf + self._rank * sent.nbytes)
        if not in_place and low[0] + low[1] > high[0]:
            raise ValueError(f"stand-in: {name} with memory that it sends from and receives in, in part")

        def run():
            current().access(name, [sent], [received], stream)
            self._meet((call, sent, received), lambda brought: _move(brought, do))
            mark(received)

        self._do(call, [sent, received], run)

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        def do(parts):
            parts = [part.view(TYPES[datatype]) for part in parts]
            total = functools.reduce(REDUCED[op], parts)
            total = (total / len(parts)).astype(total.dtype) if op == AVERAGE else total
            return total.view(np.uint8)

        self._together("allReduce", sendbuf, recvbuf, count, datatype, stream, do, op=op)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        self._together("allGather", sendbuf, recvbuf, count, datatype, stream, np.concatenate, self._size)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        self._together("broadcast", sendbuff, recvbuff, count, datatype, stream, lambda parts: parts[root], peer=root)

    # ---- messages ------------------------------------------------------------------------------------------------

    def send(self, sendbuf, count, datatype, peer, stream):
        self._later(self._noted("send", stream, sent=sendbuf, count=count, type=datatype, peer=peer), sendbuf)

    def recv(self, recvbuf, count, datatype, peer, stream):
        self._later(self._noted("recv", stream, received=recvbuf, count=count, type=datatype, peer=peer), recvbuf)

    def _later(self, call, address):
        if not call.grouped:
            raise ValueError(f"stand-in: {call.name} outside of a group: two ranks that both send first wait for ever")
        there = self._bytes(call, address, call.count)
        _group.calls.append((call.name, lambda: self._do(call, [there], lambda: self._deliver(call, there))))

    def _deliver(self, call, there):
        meeting, kind, sends = self._meeting, (call.count, call.type), call.name == "send"
        key = (self._rank, call.peer) if sends else (call.peer, self._rank)
        current().access(call.name, [there] if sends else [], [] if sends else [there], call.stream)
        with meeting.changed:
            waiting = meeting.mail.setdefault(key, [])
            if sends:
                waiting.append((kind, there.view(np.ndarray).copy()))
                meeting.changed.notify_all()
                return
            if not meeting.changed.wait_for(lambda: waiting, PATIENCE):
                raise TimeoutError(f"stand-in: rank {self._rank} waits for {call}")
            theirs, found = waiting.pop(0)
        if theirs != kind:
            raise ValueError(f"stand-in: {key[0]} sends {theirs} (count, type), rank {key[1]} receives {kind}")
        there.view(np.ndarray)[...] = found
        mark(there)

    # ---- its end -------------------------------------------------------------------------------------------------

    def check_async_error(self):
        if not self.comm:
            raise NcclError(4)
        if state().error:
            raise NcclError(state().error)

    def _end(self, name):
        """Waits for every graph that captured a call, as the real one does: for ever, if it must."""
        if self.ending:
            raise ValueError(f"stand-in: {name} of a group that another call is ending")
        self.ending = True
        limit = time.monotonic() + PATIENCE
        while len(self.graphs):
            if time.monotonic() > limit:
                raise TimeoutError(f"stand-in: {name} waits for a graph that captured a call")
            time.sleep(0.01)
        self._noted(name)
        self.comm = 0

    abort = lambda self: self._end("abort")
    destroy = lambda self: self._end("destroy")


def _move(brought, do):
    """Check that all ranks ask for the same, and give each what it receives."""
    calls, sent, received = zip(*brought, strict=True)
    if len({(call.name, call.count, call.type, call.op, call.peer) for call in calls}) > 1:
        raise ValueError(f"stand-in: ranks call differently: {calls}")
    values = do([part.view(np.ndarray).copy() for part in sent])
    for there in received:
        there.view(np.ndarray)[...] = values


def unique_id():
    key = os.urandom(KEY)
    state().groups[key] = _Meeting()
    return key


NAMES = {name: told["value"] for name, told in known()["cupy.cuda.nccl"].items() if told and "value" in told}
NAMES |= {
    "NcclCommunicator": NcclCommunicator, "NcclError": NcclError, "available": True, "get_unique_id": unique_id,
    "get_version": lambda: state().version,
    "groupStart": group_start, "groupEnd": group_end,
}  # fmt: skip
