"""cupy.cuda.Device, Stream and Event: what is current in a thread, and what waits for what."""

import itertools
import time
import weakref

from .graphs import UNSUPPORTED, Capture, Graph, capturing
from .machine import CUDARuntimeError, current

_pointers = itertools.count(1 << 20, 16)
_events: "weakref.WeakValueDictionary" = weakref.WeakValueDictionary()  # by what the driver calls them
NULL, NOT_READY = 0, 600
INVALIDATED, UNJOINED, ISOLATION, CAPTURED = 901, 904, 905, 907  # errors of captures


class Device:
    """A device by its number; the current one without."""

    def __init__(self, device=None):
        self.id = current().device if device is None else int(device)
        self._before = []

    def __enter__(self):
        self._before.append(current().device)
        current().device = self.id
        return self

    def __exit__(self, *_):
        current().device = self._before.pop()

    def synchronize(self):
        current().wait("Device.synchronize", device=self.id)

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    compute_capability = property(lambda self: current().capability)
    pci_bus_id = property(lambda self: f"0000:{self.id:02X}:00.0")


class Stream:
    """ptr: what the driver calls it; device_id: -1 for the default streams of every device."""

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.ptr, self.device_id, self._before = (NULL, -1, []) if null else (next(_pointers), current().device, [])
        if not null:
            current().streams[self.ptr] = self.device_id
            if non_blocking:
                current().order.independent.add((self.device_id, self.ptr))

    def __eq__(self, other):
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __enter__(self):
        self._before.append(get_current_stream())
        return self.use()

    def __exit__(self, *_):
        self._before.pop().use()

    def use(self):
        machine = current()
        if self.device_id not in (-1, machine.device):
            raise RuntimeError(
                f"This stream was not created on the current device (stand-in: it is one of {self.device_id}, "
                f"current is {machine.device})"
            )
        machine.thread.streams[machine.device] = self
        return self

    is_capturing = lambda self: current().stream(self) in current().captures

    def synchronize(self):
        current().wait("Stream.synchronize", self)

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        """A stream that waits for an event of a capture joins it."""
        machine, capture = current(), capturing(self)
        key = machine.stream(self)
        if event.capture is not None and event.capture in machine.captures.values():
            machine.captures[key] = event.capture
            event.capture.order.waits(key, event.seen)
            event.capture.work.append(("wait", key, event.token, []))
            return
        if capture is not None and event.recorded is not None:
            capture.refuse(ISOLATION)
        with machine.lock:
            machine.order.waits(machine.stream(self), event.seen)
            if event.endless:
                machine.endless.add(self.ptr)

    def begin_capture(self, mode=None):
        machine = current()
        key = machine.stream(self)
        if self.ptr == NULL or key in machine.captures:
            raise CUDARuntimeError(UNSUPPORTED)
        machine.captures[key] = Capture(key)

    def end_capture(self):
        machine, capture = current(), capturing(self)
        if capture is None or capture.main != machine.stream(self):
            raise CUDARuntimeError(UNSUPPORTED)
        machine.captures = {key: other for key, other in machine.captures.items() if other is not capture}
        if capture.broken or capture.unjoined():
            raise CUDARuntimeError(INVALIDATED if capture.broken else UNJOINED)
        return Graph(capture)


Stream.null = Stream(null=True)


class Event:
    """recorded: the stream whose work it marks, None before."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.disable_timing, self.recorded, self.time = disable_timing, None, 0.0
        self.endless = False  # whether the work it stands for never ends
        self.capture = None  # of the stream, where it marks a point of a graph
        self.seen = {}  # operations that it stands for: none as long as it was not recorded
        self.device_id, self.ptr = current().device, next(_pointers)
        _events[self.ptr] = self

    def record(self, stream=None):
        stream = stream or get_current_stream()
        if stream.device_id not in (-1, self.device_id):
            raise CUDARuntimeError(400)
        self.recorded, self.time, machine = stream, time.perf_counter(), current()
        self.capture, key = capturing(stream), machine.stream(stream)
        if self.capture is not None:
            self.token, self.seen = object(), dict(self.capture.order.streams.setdefault(key, {}))
            self.capture.work.append(("record", key, self.token, []))
            return
        with machine.lock:
            self.seen, self.endless = machine.order.recorded(key), stream.ptr in machine.endless

    def _look(self):
        if self.capture is not None:
            self.capture.refuse(CAPTURED)

    def synchronize(self):
        self._look()
        if current().failed:
            raise CUDARuntimeError(current().failed)
        current().wait("Event.synchronize", seen=self.seen)

    @property
    def done(self):
        """Whether its work has ended, which it has not where the GPU failed; who asks knows it then."""
        return event_query(self.ptr) == 0


def event_query(event):
    """The status of an event by its pointer; where its work has ended, the host knows that as if it had waited."""
    event, machine = _events[event], current()
    event._look()
    if machine.failed:
        return machine.failed
    with machine.lock:
        if not event.endless:
            machine.order.host_waits(seen=event.seen)
    return NOT_READY if event.endless else 0


def get_current_stream(device_id=-1):
    machine = current()
    return machine.thread.streams.get(machine.device if device_id < 0 else device_id, Stream.null)


def get_elapsed_time(start_event, end_event):
    """Milliseconds between two events, on the clock of the host."""
    if start_event.disable_timing or end_event.disable_timing or None in (start_event.recorded, end_event.recorded):
        raise CUDARuntimeError(400)
    return 1000 * (end_event.time - start_event.time)
