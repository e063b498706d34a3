"""What convolution, pooling and resizing share: single images and sequences seen as batches of images, and sizes.

An op on images has ndim 2 and takes (N, C, H, W) or (C, H, W); one on sequences has ndim 1, takes (N, C, L) or (C, L),
and works on images of height 1.
"""

import functools

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.launcher import LIMIT, pair

from .. import device
from ..core.tensor import tensor_of
from .shape import squeeze, unsqueeze

__all__ = ["as_given", "check_vectors", "floating_of", "images_of", "pair_of"]


def floating_of(op, name, value):
    """The value, a Tensor of floating elements."""
    if not device.is_floating(tensor_of(op, name, value).dtype):
        raise KindError(f"{op}: {name} has elements {value.dtype}, wanted floating ones; convert with .to('float32')")
    return value


def check_vectors(op, input, shape, **vectors):
    """Refuse what is neither None nor a Tensor of this shape."""
    for name, vector in vectors.items():
        if vector is not None and tensor_of(op, name, vector).shape != shape:
            raise ShapeError(f"{op}: {name} has shape {vector.shape}, wanted {shape} (input has shape {input.shape})")


def images_of(op, input, ndim):
    """The input as (N, C, H, W)."""
    if floating_of(op, "input", input).ndim not in (ndim + 1, ndim + 2):
        wanted = "(N, C, H, W) or (C, H, W)" if ndim == 2 else "(N, C, L) or (C, L)"
        raise ShapeError(f"{op}: input has shape {input.shape}, wanted {wanted}")
    images = input if ndim == 2 else unsqueeze(input, -2)
    return images if images.ndim == 4 else unsqueeze(images, 0)


def as_given(images, input, ndim):
    """A result (N, C, I, J) with as many dimensions as the input had."""
    if ndim == 2 and input.ndim == 4:
        return images
    out = images if ndim == 2 else squeeze(images, 2)
    return out if input.ndim == ndim + 2 else squeeze(out, 0)


def pair_of(op, name, value, ndim, least):
    """(vertical, horizontal) from one integer or ndim of them; along a height that is not there `least`."""
    if type(value) is int and least <= value < LIMIT:  # as nearly always
        return _same(value if ndim == 2 else least, value)
    if isinstance(value, tuple | list) and not len(value) == ndim == 2:
        if len(value) == 1 and not isinstance(value[0], tuple | list):
            (value,) = value
        elif ndim == 1:
            raise KindError(f"{op}: {name} is {value!r}, wanted one integer")
    value = pair(least).of(op, name, value)
    return value if ndim == 2 else _same(least, value[1])


@functools.cache
def _same(vertical, horizontal):
    """The very same pair each time, at which launchers need not look again."""
    return vertical, horizontal
