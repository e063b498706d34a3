"""Borders.

Types   any; out as input
Errors  ValueError if a shape or width does not fit, TypeError for other kinds
Source  each op is linear in input and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

from minigrad_kernels.errors import ShapeError

from ... import device
from ...core.check import integers_of, number_of
from ...core.primitive import primitive
from ...core.tensor import tensor_of
from ..elementwise.conversions import composed
from .arrange import flip
from .joins import cat
from .select import getitem
from .views import clone, expand

__all__ = ["pad"]

MODES = ("constant", "reflect", "replicate", "circular")


@primitive
def _pad(input, widths, value):
    """input inside a border: widths gives (before, after) for each axis."""
    shape = tuple([n + before + after for n, (before, after) in zip(input.shape, widths, strict=True)])
    out = device.full(shape, value, input.dtype, device.order_of(input), input)
    device.assign(out[(*_inside(input.shape, widths), ...)], input)
    return out


def _inside(shape, widths):
    return tuple([slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True)])


_pad.grads(input=lambda g, input_shape, widths: getitem(g, _inside(input_shape, widths)))


def _cut(input, widths):
    """Without what negative widths take away."""
    if all(width >= 0 for pair in widths for width in pair):
        return input
    sizes = zip(input.shape, widths, strict=True)
    return getitem(input, tuple([slice(max(-before, 0), n - max(-after, 0)) for n, (before, after) in sizes]))


def _grown(widths):
    return tuple([(max(before, 0), max(after, 0)) for before, after in widths])


def pad(input, pad, mode="constant", value=None):
    """input inside a border; negative widths cut.

    mode    'constant' (value, 0 by default), 'reflect' (about the last elements), 'replicate' (the last elements
            again), 'circular' (from the other end); the last three pad all dimensions but one or two leading ones

    Math    out = input inside; outside value, or input at the index that mode gives
    Grads   dinput = g inside, and g of the border where it came from
    Shapes  pad = (before, after) of the last dimension, then of the one before it, ...
    """
    tensor_of("pad", "input", input)
    widths = integers_of("pad", "pad", (pad,))
    if not isinstance(mode, str) or mode not in MODES:
        raise ShapeError(f"pad: mode is {mode!r}, wanted one of {MODES}")
    if len(widths) % 2 or len(widths) > 2 * input.ndim:
        raise ShapeError(
            f"pad: pad has {len(widths)} widths, wanted a pair for each of at most {input.ndim} dimensions"
        )
    pairs = [(0, 0)] * (input.ndim - len(widths) // 2) + list(zip(widths[0::2], widths[1::2], strict=True))[::-1]
    value = 0 if value is None else number_of("pad", "value", value)
    _check(input.shape, pairs, widths, mode)
    if mode == "constant":
        if not device.is_floating(input.dtype) and not float(value).is_integer():
            raise ShapeError(f"pad: value is {value}, wanted a whole number as input has elements {input.dtype}")
        return _pad(_cut(input, pairs), _grown(pairs), value)
    if value:
        raise ShapeError(f"pad: value is {value}, wanted none in mode {mode!r}")
    return _repeated(input, pairs, mode)


@composed
def _repeated(input, pairs, mode):
    """input in a border of elements of its own, whose gradients are added up."""
    out = _cut(input, pairs) if mode == "circular" else input
    for axis, (before, after) in enumerate(_grown(pairs)):
        out = _bordered(out, axis, before, after, mode)
    out = out if mode == "circular" else _cut(out, pairs)
    return out if max(map(max, pairs)) > 0 else clone(out)


def _check(shape, pairs, widths, mode):
    """Refuse widths that a mode does not know, or that ask for more than there is."""
    padded = len(widths) // 2
    if mode != "constant" and (padded not in (1, 2, 3) or len(shape) - padded not in (1, 2)):
        raise ShapeError(
            f"pad: pad has {len(widths)} widths and input shape {shape}; mode {mode!r} wants widths for the last 1, 2 "
            "or 3 dimensions and one or two more in front"
        )
    if mode in ("reflect", "replicate") and not all(shape[len(shape) - padded - 1 :]):
        raise ShapeError(f"pad: input has shape {shape}, wanted elements for mode {mode!r}")
    for n, (before, after) in zip(shape, pairs, strict=True):
        rest = n + min(before, 0) + min(after, 0)
        if mode in ("constant", "circular") and rest < 0 or n + before + after < 0:
            raise ShapeError(f"pad: pad {widths} cuts more than there is of input (shape {shape})")
        most = {"reflect": n - 1, "circular": rest}.get(mode)
        if most is not None and max(before, after) > max(most, 0):
            raise ShapeError(f"pad: pad {widths} is wider than what mode {mode!r} finds in input (shape {shape})")


def _bordered(input, axis, before, after, mode):
    """input with borders along an axis that repeat what mode says."""
    if not before and not after:
        return input

    def part(start, stop):
        return getitem(input, (slice(None),) * axis + (slice(start, stop),))

    n = input.shape[axis]
    if mode == "reflect":
        borders = flip(part(1, before + 1), axis), flip(part(n - 1 - after, n - 1), axis)
    elif mode == "circular":
        borders = part(n - before, n), part(0, after)
    else:
        lead, tail = input.shape[:axis], input.shape[axis + 1 :]
        borders = expand(part(0, 1), (*lead, before, *tail)), expand(part(n - 1, n), (*lead, after, *tail))
    return cat([borders[0], input, borders[1]], axis)
