"""What a call is made of: shapes, elements, element types, places in memory, all of them drawn by hypothesis."""

from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

__all__ = ["Call", "Draws", "FLOATS", "LAYOUTS", "Rule", "Value", "call", "laid", "planar", "sizes"]

FLOATS = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
WHOLE = {name: getattr(np, name) for name in ("int64", "int32", "int16", "int8", "uint8")}
TYPES = FLOATS | WHOLE | {"bool": np.bool_}
LAYOUTS = ("plain", "reversed axes", "backwards", "gaps", "part", "turned", "repeated", "read-only", "swapped bytes")
MOST = 120  # elements of a drawn shape


@dataclass(frozen=True)
class Value:
    """Elements of a Tensor.

    floating    take the floating type of the call; else they keep the type they have
    grad        a gradient is asked for
    """

    array: np.ndarray
    floating: bool = True
    grad: bool = True


@dataclass(frozen=True)
class Call:
    """Arguments of an op, with Values, also in lists, where Tensors will stand; smooth: it has a derivative there."""

    args: tuple
    kwargs: dict = field(default_factory=dict)
    smooth: bool = True


def call(*args, smooth=True, **kwargs):
    return Call(args, kwargs, smooth)


@dataclass(frozen=True)
class Rule:
    """How an op is called, and what it should give.

    draw        given Draws, it gives a Call that the op must take
    reference   its definition on float64, int64 and bool arrays, in place of the op
    out         element type of the results: "same" as the input, "float" (same, and float32 of integers), "sum" (same,
                and int64 of integers), or a type
    floats      floating types that it takes
    layouts     in which its inputs may lie
    repeats     whether equal elements, as a layout with stride 0 has, leave it differentiable
    bound       of the error, in roundings of the largest element
    """

    name: str
    draw: Callable
    reference: Callable
    out: str = "same"
    floats: tuple = tuple(FLOATS)
    layouts: tuple = LAYOUTS
    repeats: bool = True
    bound: float = 32


class Draws:
    """Draws by hypothesis; elements come from a seed, since only shapes and arguments are worth shrinking."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def integer(self, low, high):
        return self.draw(st.integers(low, high))

    def flag(self):
        return self.draw(st.booleans())

    def chance(self, percent):
        return self.integer(0, 99) >= 100 - percent

    def choice(self, *values):
        return self.draw(st.sampled_from(values))

    def number(self, low, high):
        """A float, short, so that it is the same in all types."""
        return self.integer(int(low * 8), int(high * 8)) / 8

    def shape(self, least=0, most=4, empty=True):
        """From so many to so many dimensions; now and then one is empty or 1."""
        sizes, left = [], MOST
        for _ in range(self.integer(least, most)):
            size = self.choice(1, 2, 3, 4, 5, 7, 11)
            size = min(size, max(left, 1))
            sizes.append(size)
            left //= size
        if empty and sizes and self.chance(6):
            sizes[self.integer(0, len(sizes) - 1)] = 0
        return tuple(sizes)

    def dim(self, shape):
        """A dimension of a shape, from either end."""
        count = max(len(shape), 1)
        return self.integer(-count, count - 1)

    def dims(self, shape):
        """Distinct dimensions, from either end."""
        chosen = [axis for axis in range(len(shape)) if self.flag()]
        return tuple(axis - len(shape) if self.flag() else axis for axis in chosen)

    def alike(self, shape):
        """A shape that broadcasts to this one."""
        kept = shape[self.integer(0, len(shape)) :] if self.chance(30) else shape
        return tuple(1 if self.chance(25) else size for size in kept)

    def real(self, shape, kind="normal", grad=True):
        """Floating elements: normal, positive, away (distinct, and away from 0), ties (small integers)."""
        size = int(np.prod(shape))
        if kind == "normal":
            array = self.rng.standard_normal(shape)
        elif kind == "positive":
            array = 0.5 + self.rng.random(shape)
        elif kind == "away":
            array = ((self.rng.permutation(size) - size // 2 + 0.5) * 0.125).reshape(shape)
        else:
            array = self.rng.integers(-1, 2, shape).astype(float)
        return Value(np.asarray(array), grad=grad)

    def whole(self, shape, low=0, high=5, kinds=("int64", "int32", "uint8")):
        """Integers from low to below high, of one of these types."""
        dtype = TYPES[self.choice(*kinds)]
        return Value(np.asarray(self.rng.integers(low, high, shape)).astype(dtype), False, False)

    def flags(self, shape):
        return Value(np.asarray(self.rng.random(shape) < 0.5), False, False)


def laid(array, layout):
    """The elements of an array elsewhere in memory; "repeated" has the first along the first axis in place of all."""
    if layout == "read-only":
        array = array.copy()
        array.flags.writeable = False
    elif layout == "swapped bytes":
        array = array.astype(array.dtype.newbyteorder())
    elif not array.ndim or layout == "plain":
        return array.copy()
    elif layout == "reversed axes":
        array = np.asarray(array, order="F")
    elif layout == "turned":
        array = np.moveaxis(np.moveaxis(array, -1, 0).copy(), 0, -1)
    elif layout == "part":
        wide = np.zeros([size + 3 for size in array.shape], array.dtype)
        view = wide[tuple(slice(2, 2 + size) for size in array.shape)]
        view[...] = array
        return view
    elif layout == "repeated":
        return np.broadcast_to(array[:1].copy(), array.shape) if array.shape[0] else array
    else:
        step = -1 if layout == "backwards" else 2
        wide = np.zeros([size * abs(step) for size in array.shape], array.dtype)
        view = wide[(slice(None, None, step),) * array.ndim]
        view[...] = array
        return view
    return array


def sizes(draws, count, most=6):
    """So many sizes from 1."""
    return [draws.integer(1, most) for _ in range(count)]


def planar(value, ndim):
    """A setting of each dimension from one of all."""
    return (value,) * ndim if isinstance(value, int) else tuple(value)
