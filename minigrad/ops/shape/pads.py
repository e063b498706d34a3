"""Borders.

Types   any; out as input
Errors  ValueError if a shape or width does not fit, TypeError for other kinds
Source  each op is linear in input and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

import math

import numpy as np

from minigrad_kernels.errors import ShapeError

from ... import device
from ...core.check import integers_of, number_in, one_of
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensor_of
from .select import getitem, pick

__all__ = ["pad"]

# Where the elements of a padded axis come from: positions from -before to n + after - 1 -> indices.
BORDERS = {
    "reflect": lambda positions, n: n - 1 - abs(n - 1 - abs(positions)),
    "replicate": lambda positions, n: positions.clip(0, n - 1),
    "circular": lambda positions, n: positions % n,
}


@primitive
def pad_op(input, widths, value):
    """input inside a border: widths gives (before, after) for each axis."""
    shape = tuple([n + before + after for n, (before, after) in zip(input.shape, widths, strict=True)])
    out = device.full(shape, value, input.dtype, device.order_of(input), input)
    device.assign(out[(*_inside(input.shape, widths), ...)], input)
    return out


def _inside(shape, widths):
    return tuple([slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True)])


pad_op.grads(input=lambda g, input_shape, widths: getitem(g, _inside(input_shape, widths)))


def pad(input, pad, mode="constant", value=None):
    """input inside a border; negative widths cut, but in mode 'circular'.

    mode    'constant' (value, 0 by default), 'reflect' (about the last elements), 'replicate' (the last elements
            again), 'circular' (from the other end)

    Math    out = input inside; outside value, or input at the index that mode gives
    Grads   dinput = g inside, and g of the border where it came from
    Shapes  pad = (before, after) of the last dimension, then of the one before it, ...
    """
    shape, widths = tensor_of("pad", "input", input).shape, integers_of("pad", "pad", (pad,))
    if len(widths) % 2 or len(widths) > 2 * input.ndim:
        wanted = f"a pair for each of at most {input.ndim} dimensions"
        raise ShapeError(f"pad: pad has {len(widths)} widths, wanted {wanted}")
    pairs = [(0, 0)] * (input.ndim - len(widths) // 2) + list(zip(widths[0::2], widths[1::2], strict=True))[::-1]
    if any(n + min(before, 0) + min(after, 0) < 0 for n, (before, after) in zip(shape, pairs, strict=True)):
        raise ShapeError(f"pad: pad {widths} cuts more than there is of input (shape {shape})")
    if one_of("pad", "mode", mode, ("constant", *BORDERS)) != "constant":
        for axis, pair in enumerate(pairs):
            input = _bordered(input, axis, *pair, mode) if any(pair) else input
        return input
    value = number_in("pad", "value", 0 if value is None else value, input.dtype).item()
    if min(widths, default=0) < 0:
        cut = [slice(max(-before, 0), n - max(-after, 0)) for n, (before, after) in zip(shape, pairs, strict=True)]
        input = getitem(input, tuple(cut))
    return pad_op(input, tuple([(max(before, 0), max(after, 0)) for before, after in pairs]), value)


def _bordered(input, axis, before, after, mode):
    """input with borders along an axis that repeat its elements."""
    n = input.shape[axis]
    least, most = {"reflect": (-n, n - 1), "replicate": (-n, math.inf if n else 0), "circular": (0, n)}[mode]
    if min(before, after) < least or max(before, after) > most:
        wanted = f"widths from {least} to {most} for mode {mode!r}"
        raise ShapeError(f"pad: pad is {(before, after)} along dimension {axis} of size {n}, wanted {wanted}")
    places = BORDERS[mode](np.arange(-before, n + after), n)
    return pick(input, Tensor.made(places).to(input.device), axis)
