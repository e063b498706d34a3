"""The recorder: keeps the spans of one profile while it is under way."""

import threading
import time

from .layers import Layers
from .spans import KERNEL, MODULE, OUTSIDE, Span

__all__ = ["Recorder"]

clock = time.perf_counter


class Recorder:
    """What a profile has seen, in one thread.

    spans   in the order in which they began
    wall    seconds from begin to end
    looking seconds of these in which the recorder was at work itself
    memory  the Memory that is told of nodes of the tape and of optimisers; None where nobody asked for it
    """

    def __init__(self, model, memory):
        self.spans, self.stack, self.layers, self.memory = [], [], Layers(model), memory
        self.clocks = {}  # {place of a GPU: (a mark, the host's time when that had just passed)}
        self.thread = threading.get_ident()
        self.origin, self.wall, self.looking = clock(), 0.0, 0.0

    def begin(self):
        """From now on time counts."""
        self.origin, self.looking = clock(), 0.0
        self.sample()

    def time(self):
        """Seconds since the profile began."""
        return clock() - self.origin

    # ---- spans ---------------------------------------------------------------------------------------------------

    def layer(self):
        """(layer, layers joined to it) of what is being called."""
        return (self.stack[-1].layer, self.stack[-1].joined) if self.stack else (OUTSIDE, ())

    def open(self, name, kind, layer=None, place=None):
        """Begin a Span inside the one that is open, and of its layer where none is given.

        place   the GPU on which the call works
        """
        span = Span(name, kind, self.stack[-1] if self.stack else None, self.thread)
        span.layer, span.joined = self.layer() if layer is None else layer
        self.spans.append(span)
        self.stack.append(span)
        if place is not None:
            self._start_clock(place)
            span.mark = place, place.mark(), None
        span.begin = self.time()
        return span

    def open_module(self, module):
        """Begin the Span of a Module that is called."""
        inside, _ = self.layer()
        if inside == OUTSIDE:
            self.sample()  # a step begins, and gradients may have been dropped before
        return self.open(type(module).__name__, MODULE, (self.layers.of(module, inside), ()))

    def close(self, span):
        """End a Span, and those inside it that an exception has left open."""
        end = self.time()
        if not self.stack or (self.stack[-1] is not span and span not in self.stack):
            return
        if span.mark:
            place, begin, _ = span.mark
            span.mark = place, begin, place.mark()
        while True:
            ended = self.stack.pop()
            ended.end = end
            if ended.parent is not None:
                if ended.kind == KERNEL:
                    ended.parent.kernels += ended.seconds
                else:
                    ended.parent.inner += ended.seconds
            if ended is span:
                return
            ended.mark = None

    def in_kernel(self):
        """Whether a kernel is running; those that it calls are part of it."""
        return bool(self.stack) and self.stack[-1].kind == KERNEL

    # ---- what calls leave behind ---------------------------------------------------------------------------------

    def applied(self, span, values, result):
        """An operation has ended: note its bytes, its node, and what the tape keeps because of it."""
        began = self.time()
        arrays = [one._data for one in (result if type(result) is tuple else (result,))]
        span.nbytes = sum(array.nbytes for array in arrays)
        node = self.layers.remember(result, span.layer, span.joined)
        if self.memory is not None:
            self.memory.see(values)
            span.kept = 0 if node is None else self.memory.kept(node)
        self._look(began)

    def freed(self, node):
        """The tape has let go of what a node kept."""
        if self.memory is not None:
            began = self.time()
            self.memory.freed(node)
            self._look(began)

    def updated(self, optimizer):
        """An optimiser has done a step."""
        if self.memory is not None:
            began = self.time()
            self.memory.updated(optimizer)
            self._look(began)

    def sample(self):
        """Look at the memory now."""
        self._look(self.time())

    def _look(self, began):
        """Look at the memory; the time that passed since is that of the profile, and not of what is being called."""
        if self.memory is not None:
            self.memory.sample(self.time())
        passed = self.time() - began
        self.looking += passed
        if self.stack:
            self.stack[-1].inner += passed

    # ---- time on a GPU -------------------------------------------------------------------------------------------

    def _start_clock(self, place):
        """Let marks on a GPU tell the host's time: once, when the GPU has done all that it was told."""
        if place not in self.clocks:
            place.wait()
            mark = place.mark()
            place.wait()
            self.clocks[place] = mark, self.time()

    def finish(self, whole):
        """End the profile. whole: no exception ended it, so that GPUs can be asked when they did what."""
        if self.stack:
            self.close(self.stack[0])
        for place in self.clocks if whole else ():
            place.wait()
        self.wall = self.time()
        streams = {}
        for span in self.spans:
            if span.mark and whole:
                self._read(span, streams)
            span.mark = None
        self.clocks.clear()

    def _read(self, span, streams):
        """When the GPU did the work of a Span, from its marks."""
        place, begin, end = span.mark
        first, start = self.clocks[place]
        span.device = start + begin.since(first), start + end.since(first)
        known = streams.setdefault(place, [])
        if begin.stream not in known:
            known.append(begin.stream)
        number = known.index(begin.stream)
        span.lane = f"{place.name} stream {number + 1}" if number else place.name
        outer = span.parent
        while outer is not None and outer.device is None:
            outer = outer.parent
        if outer is not None:
            outer.inner_device += span.device[1] - span.device[0]
