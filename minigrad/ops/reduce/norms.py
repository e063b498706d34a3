"""Norms, and the logarithm of a sum of exponentials.

dim     an integer, several, or () for all (norm: None for all); keepdim leaves them with size 1
Types   out as input; numbers of 16 bits are added up in float32
Errors  IndexError for a dimension out of range, ValueError for one named twice, TypeError for elements of another kind
Source  derivatives of powers and logarithms; at 0 and at ties the gradient follows PyTorch
"""

import math

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...core.check import flag_of, number_of
from ...core.primitive import primitive
from ...device import array_module, elementwise
from ..axes import reduced_axes
from ..elementwise import abs, eq, exp, isnan, sign, to, where
from ..elementwise.conversions import typed
from .sums import along, floating, sum, total

__all__ = ["logsumexp", "norm"]


@primitive
def _logsumexp(input, axes, keepdim):
    largest = device.reduce(input, "max", axes, keepdims=True) if input.size else total(input, axes, True)
    largest[~array_module(input).isfinite(largest)] = 0
    powers = elementwise("sub", input, largest)
    sums = total(elementwise("exp", powers, out=powers), axes, True)
    out = elementwise("add", elementwise("log", sums), largest)
    return out if keepdim else out.squeeze(axes)


_logsumexp.grads(input=lambda g, input, out, axes:
                 along(g, input.shape, axes) * exp(input - along(out, input.shape, axes)))  # fmt: skip


def logsumexp(input, dim, keepdim=False):
    """The logarithm of a sum of exponentials, without overflow.

    Math    out = ln(sum(e^input, dim)), computed as m + ln sum of e^(input - m) for m = max input
    Grads   dinput = g * e^(input - out), that is g * softmax(input)
    Shapes  the dimensions of dim disappear
    Types   integers become float32
    """
    if dim is None:
        raise KindError("logsumexp: dim is None, wanted dimensions; () names all")
    axes, keepdim = reduced_axes("logsumexp", input, dim), flag_of("logsumexp", "keepdim", keepdim)
    if not device.is_floating(input.dtype):
        input = to(input, "float32")
    input, dtype = floating("logsumexp", input)
    return typed(_logsumexp(input, axes, keepdim), dtype)


@primitive
def _norm(input, p, axes, keepdim):
    if p == 0:
        return device.reduce(elementwise("ne", input, 0.0), "sum", axes, keepdims=keepdim, dtype=input.dtype)
    if p == 2:
        return elementwise("sqrt", total(elementwise("mul", input, input), axes, keepdim))
    sizes = elementwise("abs", input)
    if p in (math.inf, -math.inf):
        return device.reduce(sizes, "max" if p > 0 else "min", axes, keepdims=keepdim)
    if p == 1:
        return total(sizes, axes, keepdim)
    return elementwise("pow", total(elementwise("pow", sizes, p), axes, keepdim), 1 / p)


def _dx_of_norm(g, input, out, p, axes):
    """0 where the norm is 0 and, for p < 1, where the input is."""
    g, out = along(g, input.shape, axes), along(out, input.shape, axes)
    if p == 0:
        return None
    if p == 1:
        return g * sign(input)
    if p in (math.inf, -math.inf):
        winners = typed(eq(abs(input), out) + isnan(input), g.dtype)
        return g * winners / sum(winners, axes, True) * sign(input)
    g, out = where(eq(out, 0.0), 0.0, g), where(eq(out, 0.0), 1.0, out)
    if p == 2:
        return input * (g / out)
    sizes = abs(where(eq(input, 0.0), 1.0, input))  # where sign(input) = 0, any finite power does
    return sign(input) * sizes ** (p - 1) * (g / out ** (p - 1))


_norm.grads(input=_dx_of_norm)


def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """The p-norm of a vector: of all elements, or along dim; over several dimensions, of the elements as one vector.

    p       2, by the name "fro" too (of one or two dimensions) or None; any other number; inf for the largest
            absolute value, -inf for the smallest; 0 for the number of elements that are not 0
    Math    out = sum(abs(input)^p, dim)^(1/p)
    Grads   dinput = 0 where input = 0 or out = 0, else g * sign(input) * (abs(input) / out)^(p - 1)
            p inf: the largest share g
    Shapes  the dimensions of dim disappear
    Errors  ValueError for the nuclear norm, and for nothing to take a negative or infinite p of; TypeError for a dtype
            that holds less than that of input
    """
    axes, keepdim = reduced_axes("norm", input, dim), flag_of("norm", "keepdim", keepdim)
    p = _order(p, axes if dim else ())
    if (p < 0 or p == math.inf) and not math.prod([input.shape[axis] for axis in axes]):
        raise ShapeError(f"norm: input has shape {input.shape}, and nothing along dim {axes} has no norm with p={p}")
    own = input.dtype
    input, dtype = floating("norm", input, dtype)
    if not device.is_floating(own) or device.promote(own, dtype) != dtype:
        raise KindError(f"norm: dtype is {dtype}, input has elements {own}, wanted floating ones and no loss of digits")
    return typed(_norm(input, p, axes, keepdim), dtype)


def _order(p, named):
    """p as a number, where these dimensions are named."""
    if p is not None and not isinstance(p, str):
        return number_of("norm", "p", p)
    if p not in ("fro", None):
        hint = "; there are no norms of matrices here" if p == "nuc" else ""
        raise ShapeError(f"norm: p is {p!r}, wanted a number or 'fro'{hint}")
    if p == "fro" and len(named) > 2:
        raise ShapeError(f"norm: dim names {len(named)} dimensions, p='fro' wants one or two; pass p=2")
    return 2
