"""Elementwise choices and comparisons.

Types   floating types promote as in PyTorch: Python scalars and arrays without dimensions take the type of the arrays
        with dimensions, integers take the floating type they meet
Errors  ValueError if shapes do not broadcast; TypeError if an argument is neither a Tensor, an array nor a number
Source  at ties and kinks the gradient follows PyTorch
"""

from minigrad_kernels.errors import ShapeError

from ... import device
from ...device import elementwise
from ...primitive import primitive

__all__ = [
    "clamp",
    "eq",
    "ge",
    "gt",
    "isfinite",
    "isnan",
    "le",
    "logical_not",
    "lt",
    "maximum",
    "minimum",
    "ne",
    "where",
]


@primitive
def maximum(x, y):
    """Elementwise larger value; NaN if either is.

    Math    out = max(x, y)
    Grads   dx = 0 where x < y, g / 2 where x = y, else g (so NaN passes g to both); dy alike
    Shapes  x, y broadcast to out
    """
    return elementwise("maximum", x, y)


maximum.grads(x=lambda g, x, y: _unless_less(g, x, y),
              y=lambda g, x, y: _unless_less(g, y, x))  # fmt: skip


@primitive
def minimum(x, y):
    """Elementwise smaller value; NaN if either is.

    Math    out = min(x, y)
    Grads   dx = 0 where x > y, g / 2 where x = y, else g (so NaN passes g to both); dy alike
    Shapes  x, y broadcast to out
    """
    return elementwise("minimum", x, y)


minimum.grads(x=lambda g, x, y: _unless_less(g, y, x),
              y=lambda g, x, y: _unless_less(g, x, y))  # fmt: skip


def _unless_less(g, x, y):
    """The gradient of a choice that is lost where x < y: there nothing, at a tie half of it, else all."""
    return where(lt(x, y), 0.0, where(eq(x, y), g * 0.5, g))


@primitive(fixed=("condition",))
def where(condition, x, y):
    """x where the condition holds, y elsewhere.

    Math    out = x if condition else y
    Grads   dx = g where condition, else 0        dy = g where not condition, else 0
    Shapes  condition, x, y broadcast to out
    Types   condition bool
    """
    return device.select(condition, x, y)


where.grads(x=lambda g, condition: where(condition, g, 0.0),
            y=lambda g, condition: where(condition, 0.0, g))  # fmt: skip


@primitive
def clamp(x, min=None, max=None):
    """x limited to the range from min to max; where min > max, the result is max.

    Math    out = min(max(x, lower), upper)
    Grads   dx = g where min <= x <= max, else 0
            dmin = g where x < min < max, else 0        dmax = g where x > max or min > max, else 0
    Shapes  x, min, max broadcast to out
    Types   promote; x may be an integer Tensor with integer limits
    Errors  ValueError if both limits are None
    """
    if min is None and max is None:
        raise ShapeError("clamp: min and max are both None, wanted at least one limit")
    if min is not None:
        x = elementwise("maximum", x, min, named="clamp")
    return x if max is None else elementwise("minimum", x, max, named="clamp")


def _dx_of_clamp(g, x, min, max):
    if min is not None:
        g = where(ge(x, min), g, 0.0)
    return g if max is None else where(le(x, max), g, 0.0)


def _dmin_of_clamp(g, x, min, max):
    g = where(lt(x, min), g, 0.0)
    return g if max is None else where(lt(min, max), g, 0.0)


def _dmax_of_clamp(g, x, min, max):
    above = gt(x, max) if min is None else gt(maximum(x, min), max)
    return where(above, g, 0.0)


clamp.grads(x=_dx_of_clamp, min=_dmin_of_clamp, max=_dmax_of_clamp)


# ---- comparisons: bool results, no gradients -------------------------------------------------------------------------


def _comparison(name, math):
    def compare(x, y):
        return elementwise(name, x, y)

    compare.__name__ = compare.__qualname__ = name
    compare.__doc__ = f"""Elementwise comparison.

    Math    out = {math}
    Grads   none
    Shapes  x, y broadcast to out
    Types   out bool
    """
    return primitive(compare, fixed=("x", "y"))


eq = _comparison("eq", "x = y")
ne = _comparison("ne", "x != y")
lt = _comparison("lt", "x < y")
le = _comparison("le", "x <= y")
gt = _comparison("gt", "x > y")
ge = _comparison("ge", "x >= y")


def _predicate(name, math):
    def test(x):
        return elementwise(name, x)

    test.__name__ = test.__qualname__ = name
    test.__doc__ = f"""Elementwise test.

    Math    out = {math}
    Grads   none
    Shapes  out as x
    Types   out bool
    """
    return primitive(test, fixed=("x",))


isnan = _predicate("isnan", "x is not a number")
isfinite = _predicate("isfinite", "x is neither infinite nor NaN")
logical_not = _predicate("logical_not", "x = 0")
