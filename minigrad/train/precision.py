"""The precision of a training: the types in which it computes, and the scale of its loss.

float32     all in float32, the default
tf32        on a GPU, operands of products and convolutions of float32 are rounded to TF32; the CPU stays float32
bfloat16    autocast
float16     autocast, with a scaled loss

Parameters, their gradients and the state of the optimiser are float32 in all of them.
"""

import contextlib

from minigrad_kernels.errors import KindError, ShapeError

from ..amp import GradScaler, autocast
from ..core.modes import tf32
from ..optim.clip import clip_scale

__all__ = ["PRECISIONS", "Arithmetic", "computing"]

PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
SMALLEST = 2.0**-14  # scale of a loss: gradients that overflow even then are wrong, not large


def check_precision(op, precision):
    """The name of a precision; None is float32."""
    if precision is None:
        return PRECISIONS[0]
    if not isinstance(precision, str):
        raise KindError(f"{op}: precision is {precision!r}, want one of {', '.join(PRECISIONS)} or None")
    if precision not in PRECISIONS:
        raise ShapeError(f"{op}: precision is {precision!r}, want one of {', '.join(PRECISIONS)} or None")
    return precision


def computing(precision, op="computing"):
    """A with block in which a model computes in this precision."""
    precision = check_precision(op, precision)
    if precision == "tf32":
        return tf32()
    return contextlib.nullcontext() if precision == "float32" else autocast(precision)


class Arithmetic:
    """How fit computes.

    precision   one of PRECISIONS
    scaler      of the loss, a GradScaler; one that is not enabled unless the precision is float16
    """

    def __init__(self, op, precision, scaler):
        self.precision = check_precision(op, precision)
        if not isinstance(scaler, GradScaler | None):
            raise KindError(f"{op}: scaler is a {type(scaler).__name__}, want a GradScaler or None")
        self.scaler = GradScaler(enabled=self.precision == "float16") if scaler is None else scaler

    def options(self):
        """What all ranks must have alike."""
        return {"precision": self.precision, "scaler": self.scaler.state_dict()}

    def computing(self):
        return computing(self.precision)

    def step(self, optimizer, parameters, clip):
        """Clip and update; False if the update was left out, as a gradient was not finite for want of range."""
        self.apply(optimizer, parameters, clip)
        return not (self.scaler.is_enabled() and self.scaler.skipped())

    def apply(self, optimizer, parameters, clip, lost=None):
        """Clip and update where the parameters are, without waiting; gives what says there whether it was left out.

        lost    a flag (1,) there: where it is not 0, nothing is changed
        """
        if not self.scaler.is_enabled():
            options = {} if clip is None else {"scale": clip_scale(parameters, clip)[1]}
            optimizer.step(**options, **({} if lost is None else {"found_inf": lost}))
            return lost
        self.scaler.clipped_step(optimizer, None if clip is None else parameters, clip, lost)
        self.scaler.update()
        return self.scaler.found()

    def lost(self):
        """Whether no scale of the loss keeps gradients finite."""
        return self.scaler.is_enabled() and self.scaler.get_scale() < SMALLEST

    def figures(self, running):
        """What the row of an epoch says of the scale."""
        if not self.scaler.is_enabled():
            return {}
        return {"loss_scale": self.scaler.get_scale(), "skipped": running.skipped}
