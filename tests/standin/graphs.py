"""Capturing streams, and graphs: what is told to a capturing stream does not run, but each time the graph is launched.

A function of the library is called once while it is captured, for the shapes of its results, and what it wrote is put
back; the graph calls it again on the same memory. Launches and copies by address are noted alone. Whatever makes the
host wait, or would read memory of the host that is somebody else's by then, is refused as CUDA refuses it, and spoils
the capture. A graph whose memory was given back since is not launched: it may belong to others by now, unless its pool
is private and still there.
"""

import functools
import itertools
import threading
from types import SimpleNamespace

import numpy as np

from minigrad_kernels.interpreter.array import owner_of

from .machine import CUDARuntimeError, current, mark
from .order import Order

UNSUPPORTED = 900
_launches = itertools.count(1)


class GraphError(RuntimeError):
    """What a real GPU would do without a word, and wrongly."""


class Capture:
    """What is noted between begin_capture and end_capture.

    main    the stream that began it; others join it by waiting for its events
    groups  those of NCCL that it calls
    work    (name, stream, function, arrays it uses) in order
    broken  whether something was refused, so that no graph comes of it
    """

    def __init__(self, main):
        self.main, self.work, self.broken, self.order, self.groups = main, [], False, Order(), set()

    def unjoined(self):
        """Whether a stream did something that the main one does not wait for."""
        seen = self.order.streams.get(self.main, {})
        return any(seen.get(stream, 0) < known.get(stream, 0) for stream, known in self.order.streams.items())

    def note(self, name, stream, function, arrays=()):
        owners = [owner_of(array) for array in arrays if array is not None and array.size]
        self.work.append((name, stream, function, owners))
        seen = self.order.streams.setdefault(stream, {})
        seen[stream] = seen.get(stream, 0) + 1

    def refuse(self, status):
        self.broken = True
        raise CUDARuntimeError(status)


def capturing(stream=None):
    """The Capture that a stream, the current one without, takes part in."""
    machine = current()
    return machine.captures.get(machine.stream(stream)) if machine.captures else None


def refuse(status=UNSUPPORTED, stream=None, device=None):
    """Refuse what the host may not do while a stream, or any of a device, captures."""
    machine = current()
    for (number, name), capture in list(machine.captures.items()):
        if number == device or (device is None and (number, name) == machine.stream(stream)):
            capture.refuse(status)


# ---- functions -------------------------------------------------------------------------------------------------------

_inside = threading.local()


def _borrowed(value):
    """Arguments, in which arrays hold no memory."""
    from .arrays import ndarray

    if isinstance(value, ndarray):
        made, memory = ndarray.__new__(ndarray), value._memory
        made._memory = SimpleNamespace(owner=memory.owner, size=memory.size, device_id=memory.device_id)
        made._x, made.base = value._x, None
        return made
    if type(value) in (list, tuple):
        return type(value)(_borrowed(part) for part in value)
    return value


def _arrays(value):
    from .arrays import ndarray

    if isinstance(value, ndarray):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _arrays(part)


def recorded(function):
    """A function of the library that works on the current stream."""

    @functools.wraps(function)
    def call(*arguments, **options):
        capture = None if getattr(_inside, "busy", False) else capturing()
        if capture is None:
            return function(*arguments, **options)
        inputs = list(_arrays([*arguments, *options.values()]))
        roots = {id(root): root for root in (owner_of(array._x) for array in inputs if array.size)}
        before = [(root, root.view(np.ndarray).copy()) for root in roots.values()]
        _inside.busy = True
        try:
            result = function(*arguments, **options)
        finally:
            _inside.busy = False
            for root, values in before:
                root.view(np.ndarray)[...] = values
        made = list(_arrays([result]))
        given, named = _borrowed(arguments), {name: _borrowed(value) for name, value in options.items()}
        views = [array._x for array in made]

        def again():
            machine = current()
            for view, found in zip(views, _arrays([function(*given, **named)]), strict=True):
                if not np.may_share_memory(found._x, view):  # else it is an argument, or a view of one
                    view[...] = found._x.view(np.ndarray)
                    machine.access(function.__name__, writes=[view])
                    mark(view)

        capture.note(function.__name__, current().stream(), again, [array._x for array in (*inputs, *made)])
        return result

    return call


def noted(name, function, arrays, stream=None):
    """Whether a stream captures: then what it was told is noted, to be done by the graph."""
    capture = capturing(stream)
    if capture is not None:
        capture.note(name, current().stream(stream), function, arrays)
    return capture is not None


class Graph:
    """What end_capture gives; names: of what it does. As long as it lives, so do the groups of NCCL it calls."""

    def __init__(self, capture):
        self._main, self._work, self.device = capture.main, capture.work, capture.main[0]
        for group in capture.groups:
            group.graphs.add(self)

    names = property(lambda self: [name for name, *_ in self._work if name not in ("record", "wait")])

    def launch(self, stream=None):
        machine = current()
        place = machine.stream(stream)
        if place in machine.captures:
            raise NotImplementedError("stand-in: graphs in graphs")
        if place[0] != self.device:
            raise CUDARuntimeError(400)
        machine.graph_launches.append(SimpleNamespace(names=self.names))
        number, seen, functions = next(_launches), {}, machine.functions.copy()
        for name, stream_, what, owners in self._work:
            if stream_ == self._main:
                there = place
            else:
                there = place[0], f"stream {stream_[1]} in graph {number}"
                machine.order.independent.add(there)
            if name == "record":
                seen[what] = machine.order.recorded(there), there[1] in machine.endless
            elif name == "wait":
                vector, endless = seen[what]
                machine.order.waits(there, vector)
                if endless:
                    machine.endless.add(there[1])
            else:
                for owner in owners:
                    if getattr(owner, "given_back", None) is not None and owner.given_back() is None:
                        raise GraphError(f"{name} in a graph uses memory that was given back since it was captured")
                machine.thread.replayed = there
                try:
                    what()
                finally:
                    machine.thread.replayed = None
        machine.functions.clear()
        machine.functions.update(functions)
