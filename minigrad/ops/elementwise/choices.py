"""Elementwise choices, comparisons and logic.

Types   floating types promote as in PyTorch: Python scalars and arrays without dimensions take the type of the arrays
        with dimensions, integers take the floating type they meet
Errors  ValueError if shapes do not broadcast; TypeError if an argument is neither a Tensor, an array nor a number
Source  at ties and kinks the gradient follows PyTorch
"""

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...core.check import number_in
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensor_of
from ...device import elementwise
from ..conversions import ufunc

__all__ = ["bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "clamp", "eq", "ge", "gt", "isfinite", "isinf"]
__all__ += ["isnan", "le", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "masked_fill", "maximum"]
__all__ += ["minimum", "ne", "where"]


@ufunc(
    input=lambda g, input, other: _unless_less(g, input, other),
    other=lambda g, input, other: _unless_less(g, other, input),
)
def maximum(input, other):
    """Elementwise larger value; NaN if either is.

    Math    out = max(input, other)
    Grads   dinput = 0 where input < other, else g / 2 where input = other, else g
            dother = 0 where other < input, else g / 2 where input = other, else g;  NaN passes g to both
    Shapes  input, other broadcast to out
    """


@ufunc(
    input=lambda g, input, other: _unless_less(g, other, input),
    other=lambda g, input, other: _unless_less(g, input, other),
)
def minimum(input, other):
    """Elementwise smaller value; NaN if either is.

    Math    out = min(input, other)
    Grads   dinput = 0 where input > other, else g / 2 where input = other, else g
            dother = 0 where other > input, else g / 2 where input = other, else g;  NaN passes g to both
    Shapes  input, other broadcast to out
    """


def _unless_less(g, x, y):
    """The gradient of a choice that is lost where x < y: there nothing, at a tie half of it, else all."""
    return where(lt(x, y), 0.0, where(eq(x, y), g * 0.5, g))


@primitive(fixed=("condition",))
def _where(condition, input, other):
    return device.select(condition, input, other)


_where.grads(input=lambda g, condition: where(condition, g, 0.0),
             other=lambda g, condition: where(condition, 0.0, g))  # fmt: skip


def where(condition, input=None, other=None):
    """input where the condition holds, other elsewhere; the condition alone gives the places where it is not 0.

    Math    out = input where condition, else other
    Grads   dinput = g where condition, else 0        dother = 0 where condition, else g
    Shapes  condition, input, other broadcast to out; condition alone -> one vector of int64 for each of its dimensions
    Types   condition bool, of any type where it stands alone
    """
    if input is not None or other is not None:
        return _where(condition, input, other)
    return _true_places(tensor_of("where", "condition", condition).array)


@device.there
def _true_places(array):
    places = device.array_module(array).nonzero(array if array.ndim else array.reshape(1))
    return tuple(Tensor.made(device.contiguous(place)) for place in places)


def masked_fill(input, mask, value):
    """input with one value wherever the mask holds.

    Math    out = value where mask, else input
    Grads   dinput = 0 where mask, else g        dvalue = g where mask, else 0
    Shapes  input, mask broadcast to out; value a number or a Tensor without dimensions
    Types   out as input, mask bool
    Errors  ValueError for a number that does not fit in the type of input, TypeError for a fraction among integers
    """
    tensor_of("masked_fill", "input", input)
    if tensor_of("masked_fill", "mask", mask).dtype != bool:
        raise KindError(f"masked_fill: mask has elements {mask.dtype}, wanted bool")
    if not isinstance(value, Tensor):
        value = Tensor.made(number_in("masked_fill", "value", value, input.dtype))
    if value.ndim:
        raise ShapeError(f"masked_fill: value has shape {value.shape}, wanted a number or a Tensor without dimensions")
    return where(mask, value.to(input.dtype), input)


@primitive
def clamp(input, min=None, max=None):
    """input limited to the range from min to max; where min > max, the result is max.

    Math    out = min(max(x, lower), upper)
    Grads   dinput = g where min <= x <= max, else 0
            dmin = g where x < min < max, else 0        dmax = g where x > max or min > max, else 0
    Shapes  input, min, max broadcast to out
    Types   promote; input may be an integer Tensor with integer limits
    Errors  ValueError if both limits are None
    """
    if min is None and max is None:
        raise ShapeError("clamp: min and max are both None, wanted at least one limit")
    if min is not None:
        input = elementwise("maximum", input, min, named="clamp")
    return input if max is None else elementwise("minimum", input, max, named="clamp")


def _dinput_of_clamp(g, input, min, max):
    inside = True if min is None else ge(input, min)
    return where(inside if max is None else logical_and(inside, le(input, max)), g, 0.0)


def _dmin_of_clamp(g, input, min, max):
    return where(logical_and(lt(input, min), max is None or lt(min, max)), g, 0.0)


def _dmax_of_clamp(g, input, min, max):
    return where(logical_or(gt(input, max), min is not None and lt(max, min)), g, 0.0)


clamp.grads(input=_dinput_of_clamp, min=_dmin_of_clamp, max=_dmax_of_clamp)


# ---- comparisons and logic: no gradients -----------------------------------------------------------------------------


def _pairwise(name, *words):
    return _fixed(lambda input, other: elementwise(name, input, other), ("input", "other"), name, *words)


def _single(name, *words):
    return _fixed(lambda input: elementwise(name, input), ("input",), name, *words)


def _fixed(forward, arguments, name, summary, formula, types="out bool"):
    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"""{summary}.

    Math    out = {formula}
    Grads   none
    Shapes  {"input, other broadcast to out" if len(arguments) > 1 else "out as input"}
    Types   {types}
    """
    return primitive(forward, fixed=arguments)


eq = _pairwise("eq", "Elementwise comparison", "input = other")
ne = _pairwise("ne", "Elementwise comparison", "input != other")
lt = _pairwise("lt", "Elementwise comparison", "input < other")
le = _pairwise("le", "Elementwise comparison", "input <= other")
gt = _pairwise("gt", "Elementwise comparison", "input > other")
ge = _pairwise("ge", "Elementwise comparison", "input >= other")

isnan = _single("isnan", "Elementwise test for what is no number", "x is NaN")
isfinite = _single("isfinite", "Elementwise test for finite numbers", "x is neither infinite nor NaN")
isinf = _single("isinf", "Elementwise test for infinity", "x is inf or -inf")

logical_not = _single("logical_not", "Elementwise negation of truth, numbers being true unless 0", "x = 0")
logical_and = _pairwise("logical_and", "Elementwise truth of both", "input != 0 and other != 0")
logical_or = _pairwise("logical_or", "Elementwise truth of at least one", "input != 0 or other != 0")
logical_xor = _pairwise("logical_xor", "Elementwise truth of just one", "(input != 0) != (other != 0)")

_WHOLE = "bool or integers, which promote"
bitwise_not = _single("bitwise_not", "Elementwise complement of every bit; of bools, not", "not x, bit by bit", _WHOLE)
bitwise_and = _pairwise("bitwise_and", "Elementwise bits of both; of bools, and", "input and other, bit by bit", _WHOLE)
bitwise_or = _pairwise("bitwise_or", "Elementwise bits of either; of bools, or", "input or other, bit by bit", _WHOLE)
bitwise_xor = _pairwise("bitwise_xor", "Elementwise bits of just one", "input xor other, bit by bit", _WHOLE)
