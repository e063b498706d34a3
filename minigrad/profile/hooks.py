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
"""

import functools
import threading

from .. import device, fusion
from ..core import tape as engine
from ..core.primitive import Primitive
from ..core.tape import Node
from ..core.tensor import Tensor
from ..nn import Module
from ..optim import Optimizer
from .current import active, opened
from .spans import BACKWARD, FORWARD, KERNEL, PASS, UPDATE
from .waiting import around_extended, around_result, around_waits, intended

__all__ = ["install", "remove"]

_installing, _users = threading.Lock(), 0
_replaced: list[tuple] = []  # (class or module, name, what stood there)


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
    yield fusion, "_waits", around_waits
    yield fusion, "extended", around_extended
    yield fusion.Call, "result", around_result
    kernels = (cpu.Kernel, "__call__"), (cuda.Kernel, "__call__"), (team.shared, "on"), (team.shared, "alone")
    yield from ((owner, name, _around_kernel) for owner, name in kernels)


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
        layers = intended.get()
        token = intended.set(None)
        try:
            with opened(recorders, self.name, FORWARD, layers, _gpu(values)) as spans:
                result = before(self, values)
        finally:
            intended.reset(token)
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
    def step(self, closure=None, **options):
        recorders = active()
        if not recorders:
            return before(self, closure, **options)
        place = _gpu(parameter for group in self.param_groups for parameter in group["params"])
        with opened(recorders, f"{self.name}.step", UPDATE, place=place):
            loss = before(self, closure, **options)
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


@functools.cache
def _kernel_name(kernel):
    from minigrad_kernels.toolchain import progress

    return getattr(kernel, "name", None) or progress.name_of(kernel.function)
