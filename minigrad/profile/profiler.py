"""Profile: the recording, and what can be asked of it afterwards."""

import contextlib
import json
import math
import os
import threading
import time
from pathlib import Path

from minigrad_kernels.errors import StateError
from minigrad_kernels.toolchain.progress import name_of
from minigrad_kernels.toolchain.watch import part, watching

from .. import device
from ..core.interceptors import Interceptor, proceed
from ..core.modes import enable_grad
from ..core.tensor import Tensor
from ..units import aligned
from . import tables
from .layers import Layers
from .memory import Memory, flat
from .tables import OPERATIONS, OUTSIDE, Span

clock = time.perf_counter


class Profile(Interceptor):
    """Records what happens inside a with block, in this thread; the methods are for afterwards.

    model       whose layers are named as its named_modules() names them; without one, those of the Module that is
                called first
    optimizer   whose state counts as memory from the begin; others do from their first step on

    spans       a Span for each call, in the order in which they began
    memory      [(seconds since the begin, {category: bytes})]; the categories are those of profile/memory.py
    seconds     from the begin to the end, by the host's clock
    Profiles may be nested; each sees everything inside it. An exception ends the profile and goes on; what was recorded
    until then stays, but for the times on a GPU.
    Errors  RuntimeError if one is entered twice, or asked before it has ended
    """

    def __init__(self, model=None, optimizer=None):
        self._layers, self._memory = Layers(model), Memory(model, optimizer)
        self._origin = self._thread = None
        self.spans, self.memory, self.seconds = [], self._memory.samples, 0.0
        self._open = []  # Spans that have not ended, the innermost last
        self._nodes = {}  # {order of a node: (its layer, its GPU)}
        self._clocks = {}  # {place of a GPU: (a mark, the host's time when that had just passed)}
        self._looking = 0.0  # seconds in which the profile itself was at work

    def __enter__(self):
        if self._origin is not None:
            raise StateError("Profile: this one has begun already; make a new one for each with block")
        super().__enter__()
        self._watching = watching(self._watch)
        self._watching.__enter__()
        self._origin, self._thread = clock(), threading.get_ident()
        self._look()
        return self

    def __exit__(self, kind, error, traceback):
        self._watching.__exit__()
        super().__exit__()
        self._thread = None
        for place in self._clocks if kind is None else ():
            place.wait()
        self.seconds = self._now()
        for span in self.spans:
            if span.marks and kind is None:
                self._read_marks(span)
            span.marks = None
        self._clocks.clear()

    def _now(self):
        return clock() - self._origin

    # ---- what is going on ----------------------------------------------------------------------------------------

    def apply(self, primitive, values, below):
        """An op is applied."""
        if self._thread != threading.get_ident():
            return proceed(below, primitive, values)
        place = _gpu(flat(values))  # computes what waits, each as a call of its own
        tensors = [one for one in flat(values) if isinstance(one, Tensor)]
        owners = self._layers.owners(tensors)
        layer = next(filter(None, owners), self._layer())
        with self._span(primitive.name, "forward", layer, place) as span:
            result = proceed(below, primitive, values)
            results = [one for one in flat([result]) if one is not None]
            span.nbytes = sum(one.array.nbytes for one in results)
        if layer != OUTSIDE and {*owners} == {layer}:
            self._layers.own(results, layer)
        nodes = [one.node for one in results if one.node is not None]
        self._nodes.update((node.order, (layer, place)) for node in nodes)
        self._memory.see(tensors)
        self._memory.nodes.update(nodes)
        span.kept = self._look()
        return result

    @contextlib.contextmanager
    def _watch(self, kind, subject):
        """A part of the program that is no op; see minigrad_kernels/toolchain/watch.py."""
        if self._thread != threading.get_ident():
            yield
            return
        name, layer, place, nbytes = subject, self._layer(), None, 0
        if kind == "module":
            if layer == OUTSIDE:
                self._look()  # a step begins, and gradients may have been dropped before
            name, layer = type(subject).__name__, self._layers.of(subject, layer)
        elif kind == "backward":
            name = f"{subject.primitive.name}.backward"
            layer, place = self._nodes.get(subject.order) or (OUTSIDE, _gpu(flat(subject.kept.values())))
            nbytes = sum(math.prod(edge.shape) * edge.dtype.itemsize for edge in subject.edges)
        elif kind == "pass":
            name = "walk over the tape"
        elif kind == "update":
            name = f"{subject.name}.step"
            place = _gpu(one for group in subject.param_groups for one in group["params"])
        elif kind == "kernel":
            name = getattr(subject, "name", None) or name_of(subject.function)
        with self._span(name, kind, layer, place) as span:
            span.nbytes = nbytes
            yield
        if kind == "update":
            self._memory.updated(subject)
        if kind in OPERATIONS:
            self._look()

    def _layer(self):
        """The layer that is being called."""
        return self._open[-1].layer if self._open else OUTSIDE

    @contextlib.contextmanager
    def _span(self, name, kind, layer, place=None):
        """A Span inside the one that is open. place: the GPU on which the call works."""
        outer = self._open[-1] if self._open else None
        span = Span(name, kind, layer, outer)
        self.spans.append(span)
        self._open.append(span)
        if place is not None and place not in self._clocks:
            place.wait()
            mark = place.mark()
            place.wait()
            self._clocks[place] = mark, self._now()
        began = place and place.mark()
        span.begin = self._now()
        try:
            yield span
        finally:
            span.end = self._now()
            span.marks = place and (place, began, place.mark())
            self._open.pop()
            if outer is not None and kind == "kernel":
                outer.kernels += span.seconds
            elif outer is not None:
                outer.inner += span.seconds

    def _look(self):
        """Look at the memory, which takes time of the profile alone; the bytes by which the tape keeps more."""
        began = self._now()
        grown = self._memory.sample(began)
        passed = self._now() - began
        self._looking += passed
        if self._open:
            self._open[-1].inner += passed
        return grown

    def _read_marks(self, span):
        """When the GPU did the work of a Span."""
        place, begin, end = span.marks
        first, start = self._clocks[place]
        span.device, span.lane = (start + begin.since(first), start + end.since(first)), place.name
        for outer in [one for one in span.around() if one.device is not None][:1]:
            outer.inner_device += span.device[1] - span.device[0]

    # ---- what was recorded ---------------------------------------------------------------------------------------

    def rows(self, by="op"):
        """A Row for each operation, layer or kernel; see table."""
        if not self.seconds:
            raise StateError("Profile: it has not ended yet; ask after the with block")
        return tables.rows(self.spans, self._layers, self.seconds - self._looking, by)

    def table(self, by="op"):
        """The rows as text.

        by      "op": operations, "conv2d.backward" being the gradients of conv2d, and steps of optimisers;
                "layer": Modules, by their dotted names, with what they and their gradients cost;
                "kernel": compiled code that was entered.
                Layers stand in the order of the model, all others by the time that they took themselves

        operations  of a layer, those that ran for it; profile/layers.py says which
        calls       how often
        total, ms   of the host from begin to end, calls inside included; not of layers
        self, ms    of the host less the calls inside; the column adds up to less than the time of the whole profile
        share       of self in the time of the whole profile
        kernels     milliseconds of self within compiled kernels: on the CPU the computation itself, the rest being
                    Python; on a GPU the launches alone
        device      milliseconds of the GPU less the calls inside, between two events around each call: with the time
                    in which it waited for the host
        bytes       of the results, of gradients for backward
        memory      bytes that the tape began to keep for backward
        Errors      ValueError for another word
        """
        lines = aligned(*self.cells(by))
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    def cells(self, by="op"):
        """(The rows of the table as text, the head first; how many columns, from the left, are words)."""
        return tables.cells(self.rows(by), by)

    def totals(self):
        """{name: seconds} of the whole profile.

        wall        from the begin to the end
        kernels     in compiled kernels; on a GPU, in launching them
        device      in which a GPU worked, or waited within an operation
        profiling   of wall, in which the profile itself looked at memory; shares are of the rest
        """
        return {
            "wall": self.seconds,
            "kernels": sum(span.seconds for span in self.spans if span.kind == "kernel"),
            "device": sum(span.device_seconds for span in self.spans),
            "profiling": self._looking,
        }

    def peak(self):
        """({category: bytes} when memory was fullest, seconds since the begin); ({}, 0.0) if nothing was seen."""
        seconds, found = max(self.memory, key=lambda sample: sum(sample[1].values()), default=(0.0, {}))
        return found, seconds

    def timeline(self, begin=0.0):
        """[(lane, name, begin, end)] in seconds, for minigrad.draw.timeline; of what began from then on.

        The lanes are "forward", "backward" and "update" on the host, then the streams of GPUs. Nothing in a lane lies
        inside another: the operations of which a gradient is made belong to its span.
        """
        shown = "forward", "backward", "update"
        found = [span for span in self.spans if span.begin >= begin and span.kind in shown]
        found = [span for span in found if span.parent is None or not span.parent.within(*shown)]
        host = [(span.kind, span.name, span.begin, span.end) for span in found]
        return host + [(span.lane, span.name, *span.device) for span in found if span.device]

    def trace(self, path):
        """Write it as a file for chrome://tracing or https://ui.perfetto.dev.

        Source  Duffy and others 2016, "Trace Event Format": complete events (X), counters (C), metadata (M); times in
                microseconds
        """

        def event(kind, name, lane="host", **more):
            number = lanes.setdefault(lane, len(lanes))
            return {"ph": kind, "name": name, "pid": os.getpid(), "tid": number, **more}

        lanes, found = {}, []
        for span in self.spans:
            name, facts = span.name, {"layer": span.layer, "bytes": span.nbytes, "kept for backward": span.kept}
            if span.kind == "module":
                name, facts = span.layer, {"type": span.name}
            about = {"cat": span.kind, "args": {name: value for name, value in facts.items() if value}}
            times = [("host", span.begin, span.end), *([(span.lane, *span.device)] if span.device else [])]
            for lane, begin, end in times:
                found.append(event("X", name, lane, ts=1e6 * begin, dur=1e6 * (end - begin), **about))
        found += [event("C", "memory", ts=1e6 * seconds, args=sample) for seconds, sample in self.memory]
        found.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
        head = [event("M", "process_name", args={"name": "minigrad"})]
        head += [event("M", "thread_name", lane, args={"name": lane}) for lane in lanes]
        Path(path).write_text(json.dumps({"traceEvents": head + found, "displayTimeUnit": "ms"}))


def record_function(name):
    """Give what happens inside a name, which profiles that are under way show; a with block or a decorator."""
    return part("region", name)


def measure_step(model, loss, batch, optimizer, steps=1):
    """The Profile of some training steps, after one that is not recorded: compiling and first allocations are in that.

    model       a Module, which these steps train
    loss        called as loss(model(images), labels) for a scalar Tensor
    batch       (images, labels), on the device of the model
    optimizer   of its parameters
    steps       how many are recorded
    """
    (images, labels), profile = batch, Profile(model, optimizer=optimizer)
    model.train()
    for count, watch in ((1, contextlib.nullcontext()), (steps, profile)):
        with enable_grad(), watch:
            for _ in range(count):
                optimizer.zero_grad()
                with record_function("forward"):
                    value = loss(model(images), labels)
                with record_function("backward"):
                    value.backward()
                with record_function("update"):
                    optimizer.step()
    return profile


def _gpu(values):
    """The GPU on which the first Tensor that is on one lies, or to which one is moved; None if all is on the host."""
    for one in values:
        array = getattr(one, "array", one)
        if device.is_array(array) or device.is_device(array):
            place = device.place_of(array) if device.is_array(array) else device.place(array)
            if place.measured:
                return place
    return None
