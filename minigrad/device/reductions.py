"""Arrays reduced along axes: on the CPU by kernels of our own where they pay, else by what the array module has."""

import math

import numpy as np

from minigrad_kernels import reduce as kernels

from .arrays import array_module, cast, empty, full, order_of

__all__ = ["reduce"]

LARGE = 1 << 12  # elements; for fewer NumPy costs as little, and as many added one by one lose digits that show
_KERNELS = {
    "sum": kernels.sums,
    "max": lambda x, out: kernels.extremes(x, True, out),
    "min": lambda x, out: kernels.extremes(x, False, out),
}
_SINGLE = np.dtype(np.float32)


@np.errstate(all="ignore")  # infinities and NaN are results, not warnings
def reduce(array, method, axes, **options):
    """What a method of arrays (sum, max, all, cumsum, ...) gives along axes, without warnings."""
    if method in _KERNELS and array.dtype == _SINGLE and array.size >= LARGE and options.keys() <= {"keepdims"}:
        if type(array) is np.ndarray and (out := _by_kernel(array, method, axes, **options)) is not None:
            return out
        if method == "sum" and _added_one_by_one(array, axes) >= LARGE:
            return cast(reduce(array, "sum", axes, dtype="float64", **options), _SINGLE)
    if type(array) is np.ndarray:
        return np.asarray(getattr(array, method)(axis=axes, **options))
    initial = options.pop("initial", None)  # which CuPy's methods do not know
    if initial is not None and not array.size:
        shape = getattr(np.empty(array.shape), method)(axis=axes, initial=initial, **options).shape
        return full(shape, initial, array.dtype, like=array)
    return array_module(array).asarray(getattr(array, method)(axis=axes, **options))


def _by_kernel(array, method, axes, keepdims=False):
    """None where the array is not dense, or the axes do not lie side by side."""
    order = order_of(array)
    seen = array.transpose(order)
    places = [place for place, axis in enumerate(order) if axis in axes and array.shape[axis] > 1]
    if not places or not seen.flags.c_contiguous:
        return None
    first, behind = places[0], places[-1] + 1
    rows = math.prod(seen.shape[first:behind])
    if rows != math.prod([array.shape[axis] for axis in axes]):
        return None
    blocks, columns = math.prod(seen.shape[:first]), math.prod(seen.shape[behind:])
    out = empty(tuple([1 if axis in axes else size for axis, size in enumerate(array.shape)]), _SINGLE, order)
    _KERNELS[method](seen.reshape(blocks, rows, columns), out.transpose(order).reshape(blocks, columns))
    return out if keepdims else out.squeeze(axes)


def _added_one_by_one(x, axes):
    """How many partial sums follow each other: NumPy adds in pairs along the innermost axes in memory alone."""
    count = math.prod([x.shape[axis] for axis in axes])
    for axis in reversed(order_of(x)):
        if axis not in axes:
            return count
        count //= x.shape[axis]
    return 0
