"""Recording a function on a GPU: what the graph does, what it needs to live, and what the host does besides."""

import traceback
from pathlib import Path

import numpy as np

import minigrad_kernels
from minigrad_kernels.errors import KindError, StateError
from minigrad_kernels.toolchain.modes import capturing

from .. import device
from ..core.interceptors import Interceptor
from ..core.tensor import Tensor

PLUMBING = {"__call__", "method", "now", "run"}  # functions through which ops are called
OURS = (str(Path(__file__).parents[1]), str(Path(minigrad_kernels.__file__).parent))


class CaptureError(StateError):
    """What a function does cannot become part of a graph."""


class Recorder(Interceptor):
    """What minigrad_kernels.toolchain.modes describes of `capturing`, and what the engine tells besides.

    notes       (again, undo, check, after) of the host's share, in order
    leaves      {Tensor: (its gradient before, whether the function added to that)}
    written     {Tensor whose memory the graph writes: that array}
    draws       {Generator: (its seed and step on the device, that step while the graph was captured)}
    """

    def __init__(self, place, graph):
        self.place, self.graph = place, graph
        self.notes, self.leaves, self.written, self.held, self.draws = [], {}, {}, [], {}

    # ---- for kernels -----------------------------------------------------------------------------------------------

    def hold(self, values):
        for value in values:
            value = getattr(value, "_data", value)
            if isinstance(value, tuple | list):
                self.hold(value)
            elif device.is_array(value) and device.place_of(value) is self.place and not self.graph.owns(value):
                self.held.append(value)

    def keep(self, thing):
        self.held.append(thing)

    def upload(self, array):
        made = self.graph.upload(array)
        self.held.append(made)
        return made

    def write(self, target, values):
        self.graph.write(target, values)

    def note(self, again=None, undo=None, check=None, after=None):
        self.notes.append((again, undo, check, after))

    # ---- for the engine --------------------------------------------------------------------------------------------

    def refuse(self, why):
        """Say that something cannot be captured; the message is completed where the user's line is known."""
        raise CaptureError(why)

    def before_write(self, tensor):
        self.written[tensor] = tensor.array

    def before_gradient(self, leaf, adds):
        before, added = self.leaves.get(leaf, (leaf.grad, False))
        same = adds and None not in (before, leaf.grad) and leaf.grad.array is before.array
        self.leaves[leaf] = before, added or same

    def count_of(self, generator):
        """(an array of seed and step that each replay writes anew, how many steps later the next draw is).

        A twin draws again what its first one drew: a count of its own would fall behind where others draw besides.
        """
        first = generator.twin_of or generator
        words, start = self.draws.get(first, (None, None))
        if first is not generator and (words is None or generator.step < start):
            return generator.seed, generator.step + 1  # once more what was drawn before the graph
        if words is None:
            from minigrad_kernels.toolchain.cuda.launch import write  # which imports CuPy

            now = lambda: np.array(first.stands(), np.uint64)
            words, start = self.draws[first] = self.upload(now()), first.stands()[1]
            self.note(lambda: write(words, now()))
        return words, generator.step - start + 1

    # ---- the end -----------------------------------------------------------------------------------------------------

    def undo(self):
        """Take back what the host did."""
        for _, undo, _, _ in reversed(self.notes):
            if undo is not None:
                undo()
        for leaf, (before, _) in self.leaves.items():
            leaf.grad = before


def recorded(function, args, kwargs, tensors, place):
    """(Replay, the result) of a call that is captured and launched once."""
    graph = place.captures()
    inputs = [Tensor.made(device.empty_like(tensor.array)) for tensor in tensors]
    own, recorder = iter(inputs), Recorder(place, graph)
    next_of = lambda tensor: next(own)
    try:
        with graph.recording(), recorder:
            token = capturing.set(recorder)
            try:
                result = function(*mapped(args, next_of), **mapped(kwargs, next_of))
            finally:
                capturing.reset(token)
    except BaseException as error:
        recorder.undo()
        if (explained := _explained(error)) is not None:
            raise explained from error
        raise
    replay = Replay(recorder, inputs, mapped(result, lambda tensor: tensor.detach()))
    return replay, replay.launch(tensors)


class Replay:
    """A graph with all that it needs. Called with the Tensors of a call, it gives the result."""

    def __init__(self, recorder, inputs, result):
        self.graph, self.inputs, self.result = recorder.graph, inputs, result
        self.held, self.written = recorder.held, recorder.written
        again, _, checks, after = zip(*recorder.notes, strict=True) if recorder.notes else [()] * 4
        self._again, self._checks, self._after = (list(filter(None, calls)) for calls in (again, checks, after))
        self._gradients = [(leaf, leaf.grad) for leaf in recorder.leaves]
        self._added = [(leaf, before.array) for leaf, (before, added) in recorder.leaves.items() if added]

    def holds(self):
        """Whether there is a graph, and what it reads and writes still is where it was."""
        return (
            self.graph.recorded is not None
            and all(tensor.array is array for tensor, array in self.written.items())
            and all(leaf.grad is not None and leaf.grad.array is array for leaf, array in self._added)
            and all(check() for check in self._checks)
        )

    def __call__(self, tensors):
        with self.graph.place.active():
            self.graph.follow()
            for again in self._again:
                again()
            for tensor in self.written:
                tensor.version[0] += 1
            for leaf, gradient in self._gradients:
                leaf.grad = gradient
        return self.launch(tensors)

    def launch(self, tensors):
        """Copy the arguments to their places and start the graph."""
        pairs = [(own.array, given.array) for own, given in zip(self.inputs, tensors, strict=True)]
        self.graph.launch([(own, device.contiguous(given, device.order_of(own))) for own, given in pairs])
        for call in self._after:
            call(self.graph)
        return mapped(self.result, lambda tensor: tensor)


# ---- Tensors in arguments and results --------------------------------------------------------------------------------


def mapped(value, function):
    """A value with each Tensor in it replaced by function(Tensor)."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {name: mapped(part, function) for name, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [mapped(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def keyed(value, tensors, name):
    """What tells values apart that want a graph each; the Tensors in the value are added to a list.

    Errors  TypeError for what can be no part of a key, and for Tensors that require a gradient
    """
    if isinstance(value, Tensor):
        if value.requires_grad:
            raise KindError(f"capture: {name} requires a gradient; pass {name}.detach(), or use it from outside")
        tensors.append(value)
        return value.shape, value.dtype, device.order_of(value.array), value.device
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    if items is not None:
        return type(value), *[(part, keyed(one, tensors, f"{name}[{part!r}]")) for part, one in items]
    if type(value).__hash__ is None:
        raise KindError(f"capture: {name} is a {type(value).__name__}, wanted Tensors or what can be a key of a dict")
    return type(value), value


# ---- errors ----------------------------------------------------------------------------------------------------------


def _explained(error):
    """The error that says what cannot be captured, and where; None for others, of the user's program."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, CaptureError):
        why = str(error)
    elif getattr(error, "status", None) is not None:  # of CUDA and its libraries
        why = f"cannot become part of a graph: {type(error).__name__}: {error}"
    else:
        return None
    ours = [frame.filename.startswith(OURS) for frame in frames]
    calls = [k for k, inside in enumerate(ours) if k and inside and not ours[k - 1]]  # of the user's functions to us
    last = calls[-1] if calls else len(frames)
    op = next((inner.name.strip("_") for inner in frames[last:] if inner.name not in PLUMBING), "it")
    frame = frames[last - 1]
    return CaptureError(f"capture: {frame.filename}:{frame.lineno}, in {frame.name}: {op} {why}")
