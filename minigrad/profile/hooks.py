"""What a profile puts around the engine while it is under way, and takes away again.

The engine itself knows nothing of profiles: without one, its functions run as they stand there, at no cost. While
there is one, in whatever thread, the functions below stand around these:

    Primitive.now           an operation is applied
    Node.gradients          the gradients of one are computed, by its rules or at once
    Node.free               the tape lets go of what it kept
    Module._called          a Module is called
    Optimizer.step          parameters are updated
    engine._walk            the tape is walked from the last operation to the first
    fusion._waits, fusion.extended, Call.result     an operation waits for what extends it, so it runs later than its
                            layer asked for it: the layer is noted then
    Kernel.__call__, shared.on, shared.alone        compiled code is entered

A thread sees the profiles that were begun in it, those alone.
"""

import contextvars
import functools
import threading

from .. import device, engine, fusion
from ..nn import Module
from ..node import Node
from ..optim import Optimizer
from ..primitive import Primitive
from ..tensor import Tensor
from .spans import BACKWARD, FORWARD, KERNEL, PASS, UPDATE

__all__ = ["active", "install", "opened", "profiles", "remove"]

profiles: "contextvars.ContextVar[tuple]" = contextvars.ContextVar("profiles", default=())
_installing, _users = threading.Lock(), 0
_replaced: list[tuple] = []  # (class or module, name, what stood there)


def active():
    """The recorders of the profiles that are under way in this thread."""
    found = profiles.get()
    return [one for one in found if one.thread == threading.get_ident()] if found else ()


def install():
    """Put the functions below around the engine's, unless another profile has done so."""
    global _users
    with _installing:
        _users += 1
        if _users > 1:
            return
        for owner, name, around in list(_places()):
            before = owner.__dict__[name]
            _replaced.append((owner, name, before))
            setattr(owner, name, functools.wraps(before)(around(before)))


def remove():
    """Take them away after the last profile."""
    global _users
    with _installing:
        _users -= 1
        while _replaced and not _users:
            setattr(*_replaced.pop())


def _places():
    """(class or module, name of its function, what makes the function around it)."""
    from minigrad_kernels.toolchain import cpu, cuda, team

    yield Primitive, "now", _around_now
    yield Node, "gradients", _around_gradients
    yield Node, "free", _around_free
    yield Module, "_called", _around_module
    yield Optimizer, "step", _around_step
    yield engine, "_walk", _around_walk
    yield fusion, "_waits", _around_waits
    yield fusion, "extended", _around_extended
    yield fusion.Call, "result", _around_result
    kernels = (cpu.Kernel, "__call__"), (cuda.Kernel, "__call__"), (team.shared, "on"), (team.shared, "alone")
    yield from ((owner, name, _around_kernel) for owner, name in kernels)


class opened:
    """A Span in every profile that is under way, as a context; done(span, recorder) is called for each at its end."""

    __slots__ = ("recorders", "spans")

    def __init__(self, recorders, name, kind, layers=None, place=None):
        self.recorders = recorders
        layers = layers or [None] * len(recorders)
        self.spans = [one.open(name, kind, layer, place) for one, layer in zip(recorders, layers, strict=True)]

    def __enter__(self):
        return list(zip(self.spans, self.recorders, strict=True))

    def __exit__(self, *error):
        for span, recorder in zip(reversed(self.spans), reversed(self.recorders), strict=True):
            recorder.close(span)


# ---- operations ------------------------------------------------------------------------------------------------------


def _gpu(values):
    """The GPU on which the first Tensor that is on one lies, or to which one is moved; None if all is on the host.

    A Tensor that waits to be computed is computed, as a call of its own.
    """
    found = None
    for value in values:
        for one in value if type(value) is tuple else (value,):
            if isinstance(one, Tensor):
                place = device.place_of(one._data)
            elif type(one) is str and device.is_device(one):
                place = device.place(one)
            else:
                continue
            found = place if found is None and place.measured else found
    return found


def _around_now(before):
    def now(self, values):
        recorders = active()
        if not recorders:
            return before(self, values)
        layers = _intended.get()
        token = _intended.set(None)
        try:
            with opened(recorders, self.name, FORWARD, layers, _gpu(values)) as spans:
                result = before(self, values)
        finally:
            _intended.reset(token)
        for span, recorder in spans:
            recorder.applied(span, values, result)
        return result

    return now


def _around_gradients(before):
    def gradients(self, incoming, wanted, create_graph):
        recorders = active()
        if not recorders:
            return before(self, incoming, wanted, create_graph)
        return watched(recorders, self, incoming, wanted, create_graph)

    def watched(recorders, self, incoming, wanted, create_graph):
        """Each gradient is added to what had arrived before the next is asked for: that is part of the call."""
        place = _gpu(incoming)
        layers = [one.layers.of_node(self) for one in recorders]
        with opened(recorders, f"{self.primitive.name}.backward", BACKWARD, layers, place) as spans:
            for found in before(self, incoming, wanted, create_graph):
                for span, _ in spans:
                    span.nbytes += found[1]._data.nbytes
                yield found

    return gradients


def _around_free(before):
    def free(self):
        before(self)
        for recorder in active():
            recorder.freed(self)

    return free


# ---- what consists of operations -------------------------------------------------------------------------------------


def _around_module(before):
    def _called(self, args, kwargs):
        recorders = active()
        if not recorders:
            return before(self, args, kwargs)
        spans = [(recorder.open_module(self), recorder) for recorder in recorders]
        try:
            return before(self, args, kwargs)
        finally:
            for span, recorder in reversed(spans):
                recorder.close(span)

    return _called


def _around_walk(before):
    def _walk(*args, **kwargs):
        recorders = active()
        if not recorders:
            return before(*args, **kwargs)
        with opened(recorders, "walk over the tape", PASS):
            before(*args, **kwargs)
        for recorder in recorders:
            recorder.sample()

    return _walk


def _around_step(before):
    def step(self, closure=None):
        recorders = active()
        if not recorders:
            return before(self, closure)
        place = _gpu(parameter for group in self.param_groups for parameter in group["params"])
        with opened(recorders, f"{self.name}.step", UPDATE, place=place):
            loss = before(self, closure)
        for recorder in recorders:
            recorder.updated(self)
        return loss

    return step


def _around_kernel(before):
    def run(self, *args, **kwargs):
        recorders = active()
        if not recorders or recorders[0].in_kernel():
            return before(self, *args, **kwargs)
        with opened(recorders, _kernel_name(self), KERNEL):
            return before(self, *args, **kwargs)

    return run


def _kernel_name(kernel):
    from minigrad_kernels.toolchain import progress

    return getattr(kernel, "name", None) or progress.name_of(kernel.function)


# ---- operations that wait --------------------------------------------------------------------------------------------

# The layers, one for each profile, for which the next operation runs; None: those that are being called.
_intended: "contextvars.ContextVar[list | None]" = contextvars.ContextVar("intended", default=None)


def _joined(layers, others):
    """The layers of an operation that extends one which waited: the first stays, the others are noted with it."""
    found = []
    for (layer, joined), (other, _) in zip(layers, others, strict=True):
        new = other and other != layer and other not in joined and not layer.startswith(f"{other}.")
        found.append((layer, (*joined, other) if new else joined))
    return found


def _layers_of(waiting):
    """The layers noted in what a Tensor waits for; None if it is not waiting, or has been since before the profile."""
    call = fusion._call.__get__(waiting)
    return call.layers if type(call) is fusion.Call else None


def _around_waits(before):
    def _waits(call, requires_grad):
        recorders = active()
        if recorders:
            layers = [recorder.layer() for recorder in recorders]
            extended = None if call.step is None else call.step.before()
            earlier = None if extended is None else _layers_of(extended)
            known = earlier is not None and len(earlier) == len(layers)
            call = call._replace(layers=_joined(earlier, layers) if known else layers)
        return before(call, requires_grad)

    return _waits


def _around_extended(before):
    """An extension that does not wait itself is computed at once, for the layers of what waited as well."""

    def extended(primitive, values):
        recorders = active()
        waiting = [one for one in values if type(one) is fusion.Waiting and fusion.open_call(one)] if recorders else ()
        noted = [layers for one in waiting if (layers := _layers_of(one)) and len(layers) == len(recorders)]
        if not noted:
            return before(primitive, values)
        token = _intended.set(_joined(noted[0], [recorder.layer() for recorder in recorders]))
        try:
            return before(primitive, values)
        finally:
            _intended.reset(token)

    return extended


def _around_result(before):
    def result(self):
        recorders = active()
        if not recorders or self.layers is None or len(self.layers) != len(recorders):
            return before(self)
        layers = self.layers
        if self.step is not None and self.step.argument() is not None:  # what it extended has run already
            layers = [(joined[-1] if joined else layer, ()) for layer, joined in layers]
        token = _intended.set(layers)
        try:
            return before(self)
        finally:
            _intended.reset(token)

    return result
