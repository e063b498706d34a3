"""cupy.cuda.Device, Stream and Event: what is current in a thread, and what waits for what."""

import itertools
import time
import weakref

from . import graphs
from .machine import CUDARuntimeError, current

__all__ = ["Device", "Event", "Stream", "get_current_stream", "get_elapsed_time"]

_pointers = itertools.count(1 << 20, 16)
_events: "weakref.WeakValueDictionary" = weakref.WeakValueDictionary()  # by what the driver calls them
NULL, NOT_READY = 0, 600


class Device:
    """A device by its number; the current one without."""

    def __init__(self, device=None):
        self.id = current().device if device is None else int(device)
        self._before = []

    def __int__(self):
        return self.id

    def __enter__(self):
        self._before.append(current().device)
        current().device = self.id
        return self

    def __exit__(self, *_):
        current().device = self._before.pop()

    def use(self):
        current().device = self.id

    def synchronize(self):
        current().wait("Device.synchronize", device=self.id)

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    compute_capability = property(lambda self: current().capability)
    pci_bus_id = property(lambda self: f"0000:{self.id:02X}:00.0")

    @property
    def mem_info(self):
        """(free, total) bytes"""
        device = current().devices[self.id]
        return device.capacity - device.held, device.capacity


class Stream:
    """ptr: what the driver calls it; device_id: -1 for the default streams of every device."""

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.ptr, self.device_id, self._before = (NULL, -1, []) if null else (next(_pointers), current().device, [])
        self.is_non_blocking, self.priority = non_blocking, priority
        if not null:
            current().streams[self.ptr] = self.device_id
            if non_blocking:
                current().order.independent.add((self.device_id, self.ptr))

    def __eq__(self, other):
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self):
        return hash(self.ptr)

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
        machine = current()
        if graphs.wait(self, event):
            return
        with machine.lock:
            machine.order.waits(machine.stream(self), event.seen)
            if event.endless:
                machine.endless.add(self.ptr)

    def begin_capture(self, mode=None):
        graphs.begin(self)

    def end_capture(self):
        return graphs.end(self)


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
        if graphs.record(self, stream):
            return
        with machine.lock:
            self.seen, self.endless = machine.order.recorded(machine.stream(stream)), stream.ptr in machine.endless

    def synchronize(self):
        graphs.captured_event(self)
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
    graphs.captured_event(event)
    machine.note_asking()
    if machine.failed:
        return machine.failed
    with machine.lock:
        if not event.endless:
            machine.order.host_waits_for(event.seen)
    return NOT_READY if event.endless else 0


def get_current_stream(device_id=-1):
    machine = current()
    return machine.thread.streams.get(machine.device if device_id < 0 else device_id, Stream.null)


def get_elapsed_time(start_event, end_event):
    """Milliseconds between two events, on the clock of the host."""
    if start_event.disable_timing or end_event.disable_timing or None in (start_event.recorded, end_event.recorded):
        raise CUDARuntimeError(400)
    return 1000 * (end_event.time - start_event.time)
