"""What a profile puts around fusion.py: an operation that waits for what extends it belongs to the layer that asked.

It runs later, when another layer may be called. So the layer is noted when it begins to wait, with those of what
extends it, and is handed on when it runs.
"""

import contextvars

from .. import fusion
from .current import active

__all__ = ["around_extended", "around_result", "around_waits", "intended"]

# The layers, one for each profile, for which the next operation runs; None: those that are being called.
intended: "contextvars.ContextVar[list | None]" = contextvars.ContextVar("intended", default=None)


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


def around_waits(before):
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


def around_extended(before):
    """An extension that does not wait itself is computed at once, for the layers of what waited as well."""

    def extended(primitive, values):
        recorders = active()
        waiting = [one for one in values if type(one) is fusion.Waiting and fusion.open_call(one)] if recorders else ()
        noted = [layers for one in waiting if (layers := _layers_of(one)) and len(layers) == len(recorders)]
        if not noted:
            return before(primitive, values)
        token = intended.set(_joined(noted[0], [recorder.layer() for recorder in recorders]))
        try:
            return before(primitive, values)
        finally:
            intended.reset(token)

    return extended


def around_result(before):
    def result(self):
        recorders = active()
        if not recorders or self.layers is None or len(self.layers) != len(recorders):
            return before(self)
        layers = self.layers
        if self.step is not None and self.step.argument() is not None:  # what it extended has run already
            layers = [(joined[-1] if joined else layer, ()) for layer, joined in layers]
        token = intended.set(layers)
        try:
            return before(self)
        finally:
            intended.reset(token)

    return result
