"""Ops that pick elements by subscripts and masks, and the two primitives behind every op that picks by index.

Types   any; out as input; indices integers, masks bools
Errors  ValueError if a shape or size does not fit, IndexError for a subscript out of range, TypeError for other kinds
Source  each op is linear and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

import contextlib
import math
from numbers import Integral

from minigrad_kernels import scatter
from minigrad_kernels.errors import KindError, SubscriptError

from ... import device
from ...core.check import integer_of
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensor_of
from ...device import array_module
from .views import expand, permute, reshape

__all__ = ["getitem", "masked_select"]

# ---- by arrays of indices --------------------------------------------------------------------------------------------


@primitive(fixed=("places",))
def pick(input, places, axis):
    """The elements at these places, 0 or more, of an axis; the axes of places stand where it stood."""
    module = array_module(input)
    if input.flags.c_contiguous:
        return module.asarray(module.take(input, places, axis))
    return module.asarray(input[(slice(None),) * axis + (places,)])  # take would copy all of input first


pick.grads(input=lambda g, places, axis, input_shape: put(g, places, axis, input_shape))


@primitive(fixed=("places",))
def put(input, places, axis, shape):
    """input added into zeros of this shape at these places of an axis: the adjoint of pick."""
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    rows = device.contiguous(places).reshape(-1)
    if outer != 1:
        rows = (device.arange(outer, input).reshape(-1, 1) * shape[axis] + rows).reshape(-1)
    x = device.contiguous(input).reshape(rows.size, inner)
    if not device.is_floating(x.dtype):
        return _added(x, rows, (outer * shape[axis], inner)).reshape(shape)
    if x.itemsize < 4:
        x = device.cast(x, "float32")
    out = device.empty((outer * shape[axis], inner), x.dtype, like=x)
    order = None if device.place_of(x) is device.CPU else rows.argsort(kind="stable")
    scatter.add_rows(x, rows, order, out)
    return (out if x.dtype == input.dtype else device.cast(out, input.dtype)).reshape(shape)


def _added(x, rows, shape):
    """Rows of integers added where rows say, all as uint64, which CuPy can add and from which none loses a bit."""
    out = device.zeros(shape, "uint64", like=x)
    array_module(x).add.at(out, rows, device.cast(x, "uint64"))
    return device.cast(out, x.dtype)


put.grads(input=lambda g, places, axis: pick(g, places, axis))


@device.there
def within(op, indices, size, negative=False):
    """Indices as a Tensor of int64 from 0 to size - 1; negative ones, where allowed, count from the end.

    What is made of indices keeps their version, so that backward notices a change of theirs.
    """
    array = indices.array
    if array.dtype.kind not in "iu":
        raise KindError(f"{op}: the indices have elements {array.dtype}, wanted integers")
    low, high = (int(array.min()), int(array.max())) if array.size else (0, -1)
    least = -size if negative else 0
    if low < least or high >= size:
        raise SubscriptError(f"{op}: the indices run from {low} to {high}, wanted {least} to {size - 1}")
    if low >= 0 and array.dtype == "int64":
        return indices
    array = array.astype("int64")
    return Tensor.made(array + size * (array < 0) if low < 0 else array, version=indices.version)


# ---- by subscripts ---------------------------------------------------------------------------------------------------


def subscript(array, key):
    """array[key] for a tuple of integers, slices and None."""
    try:
        return array[key]
    except (IndexError, ValueError, TypeError) as error:
        wrong = KindError if isinstance(error, TypeError) else SubscriptError
        raise wrong(f"getitem: {error} (input has shape {array.shape})") from None


@primitive(view="input")
def _getitem(input, key):
    """input[key] for a tuple of integers, slices and None."""
    return array_module(input).asarray(subscript(input, key))


_getitem.grads(input=lambda g, key, input_shape: _setitem(g, key, input_shape))


@primitive
def _setitem(input, key, shape):
    """Zeros of this shape with input at what key picks: the adjoint of _getitem."""
    out = device.zeros(shape, input.dtype, device.order_of(input) if input.ndim == len(shape) else None, input)
    device.assign(out[(*key, ...)], input)
    return out


_setitem.grads(input=lambda g, key: _getitem(g, key))


def getitem(input, key):
    """The elements that a subscript picks: integers, slices, None, Ellipsis, arrays, Tensors and lists of these.

    Integers, slices, None and Ellipsis act first. Then index arrays broadcast together, and their dimensions stand
    where the first of them stood if they stand side by side, else in front. A mask picks where it is True.

    Math    out = input[key]
    Grads   dinput = g at the picked places (added where one was picked twice), 0 elsewhere
    Shapes  as PyTorch's indexing; negative steps as NumPy's
    """
    shape = tensor_of("getitem", "input", input).shape
    if type(key) is int and shape and -shape[0] <= key < shape[0]:  # as in loops over time
        return _getitem(input, (key,))
    basic, arrays = parsed(shape, key)
    plain = len(basic) == input.ndim and all(part == slice(None) for part in basic)
    if plain and not arrays:
        return input
    out = input if plain else _getitem(input, basic)
    return _at_arrays(out, arrays) if arrays else out


def parsed(shape, key):
    """(key without arrays, [(first axis, number of axes, array)] for the arrays, by axes of what that key picks)."""
    parts = [_part(part) for part in (key if isinstance(key, tuple) else (key,))]
    slack = len(shape) - sum(map(_width, parts))
    if slack < 0 or sum(part is Ellipsis for part in parts) > 1:
        wanted = f"at most {len(shape)} subscripts and one Ellipsis for input of shape {shape}"
        raise SubscriptError(f"getitem: key has too many subscripts, wanted {wanted}")
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    basic, arrays, axis = [], [], 0
    for part in parts:
        width = slack if part is Ellipsis else _width(part)
        if isinstance(part, Tensor):
            first = sum(not isinstance(one, int) for one in basic)
            arrays.append((first, max(width, 1), _unmasked(part, shape[axis : axis + width])))
        if isinstance(part, Tensor) and not part.ndim:  # True or False
            basic.append(None)
        elif part is Ellipsis or isinstance(part, Tensor):
            basic += [slice(None)] * width
        else:
            basic.append(part)
        axis += width
    return tuple(basic), arrays


def _width(part):
    """How many axes a part stands for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, Tensor) and part.dtype == bool else 1


def _part(part):
    """A part of a key as None, Ellipsis, a slice, an integer, or a Tensor of integers or bools."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, Integral) and not isinstance(part, bool):
        return integer_of("getitem", "key", part)
    part = part if isinstance(part, Tensor) else _as_tensor(part)
    if part.dtype.kind not in "biu" or part.dtype == "uint8":
        hint = "; convert with .to('bool') for a mask, .to('int64') for places" if part.dtype == "uint8" else ""
        raise SubscriptError(f"getitem: key holds elements {part.dtype}, wanted integers or bools{hint}")
    return part if part.ndim or part.dtype == bool else int(part.item())


def _as_tensor(part):
    """A list, an array or a bool as a Tensor."""
    array = None
    if isinstance(part, list | tuple | range | bool) or hasattr(part, "dtype"):
        with contextlib.suppress(KindError):
            array = device.asarray(part)
    if array is None:
        wanted = "integers, slices, None, Ellipsis, or arrays, Tensors and lists of integers or bools"
        raise SubscriptError(f"getitem: key holds {part!r}, wanted {wanted}")
    return Tensor.made(array if array.size or array.dtype == bool else array.astype("int64"))


@device.there
def _unmasked(part, shape):
    """Indices as they are; of a mask, where it is True, in C order."""
    if part.dtype != bool:
        return part
    if part.shape != shape:
        raise SubscriptError(f"getitem: a mask has shape {part.shape}, the dimensions it stands for {shape}")
    return Tensor.made(array_module(part.array).flatnonzero(part.array), version=part.version)


@device.there
def _at_arrays(input, arrays):
    """What arrays pick of input, as (first axis, number of axes, array) each."""
    places = None
    for first, width, array in arrays:
        size = math.prod(input.shape[first : first + width])
        array = within("getitem", array, size, negative=True).to(input.device)
        try:
            places = array if places is None else Tensor.made(places.array * size + array.array)
        except ValueError:
            shapes = [array.shape for *_, array in arrays]
            raise SubscriptError(f"getitem: index arrays have shapes {shapes}, which do not broadcast") from None
    axes = [axis for first, width, _ in arrays for axis in range(first, first + width)]
    start = axes[0]
    if axes != list(range(start, start + len(axes))):
        input, start = permute(input, (*axes, *(axis for axis in range(input.ndim) if axis not in axes))), 0
    stop = start + len(axes)
    shape = (*input.shape[:start], math.prod(input.shape[start:stop]), *input.shape[stop:])
    return pick(reshape(input, shape), places, start)


def masked_select(input, mask):
    """The elements where a mask is True, in C order.

    Math    out = input[mask]
    Grads   dinput = g where the mask is True, 0 elsewhere
    Shapes  input and mask broadcast; out (K,), for a mask that is True K times
    """
    tensor_of("masked_select", "input", input)
    if tensor_of("masked_select", "mask", mask).dtype != bool:
        raise KindError(f"masked_select: mask has elements {mask.dtype}, wanted bools")
    shape = device.broadcast_shapes("masked_select", input.array, mask.array)
    return getitem(expand(input, shape), expand(mask, shape))
