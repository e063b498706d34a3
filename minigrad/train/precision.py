"""The precision of a training: the types in which it computes.

float32     all in float32, the default
tf32        on a GPU, operands of products and convolutions of float32 are rounded to TF32; the CPU stays float32
bfloat16    autocast
float16     autocast, with a scaled loss

Parameters, their gradients and the state of the optimiser are float32 in all of them.
"""

import contextlib

from minigrad_kernels.toolchain.modes import tf32

from ..amp import autocast
from ..core.check import one_of

PRECISIONS = ("float32", "tf32", "bfloat16", "float16")


def check_precision(op, precision):
    """The name of a precision; None is float32."""
    return PRECISIONS[0] if precision is None else one_of(op, "precision", precision, PRECISIONS)


def computing(precision, op="computing"):
    """A with block in which a model computes in this precision."""
    precision = check_precision(op, precision)
    if precision == "tf32":
        return tf32()
    return contextlib.nullcontext() if precision == "float32" else autocast(precision)
