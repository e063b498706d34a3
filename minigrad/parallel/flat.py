"""Flat memory: many tensors in one array, so that one collective carries them all."""

import numpy as np

from .. import device
from ..tensor import Tensor
from .buckets import bucket_bounds

__all__ = ["Bucket", "buckets_of", "view_of"]


def view_of(flat, start, like):
    """The elements of a flat array from `start` on, in the shape of an array and lying as it lies."""
    order = device.order_of(like)
    shape = [like.shape[axis] for axis in order]
    return flat[start : start + like.size].reshape(shape).transpose(np.argsort(order).tolist())


class Bucket:
    """Tensors of one device and element type, and an array with a view for each, filled up to a multiple of `ranks`.

    tensors     in the order in which they lie
    array       1-D, zeros between and behind the views
    views       arrays of the shapes and layouts of the tensors
    """

    def __init__(self, tensors, ranks=1):
        self.tensors = list(tensors)
        first = self.tensors[0].data
        self.starts = [0, *np.cumsum([tensor.data.size for tensor in self.tensors]).tolist()]
        self.size = -(-self.starts[-1] // ranks) * ranks
        self.array = device.zeros((self.size,), first.dtype, like=first)
        self.views = self.views_on(self.array)

    def views_on(self, array):
        """Views like those of the bucket on another flat array."""
        return [view_of(array, start, t.data) for start, t in zip(self.starts, self.tensors, strict=False)]

    def gather(self, values):
        """Copy arrays, or zeros for None, to their places, unless they lie there already."""
        for value, view in zip(values, self.views, strict=True):
            if value is None:
                device.fill(view, 0)
            elif value is not view:
                device.assign(view, value)

    def scatter(self):
        """Make the tensors, leaves all, look at their places."""
        for tensor, view in zip(self.tensors, self.views, strict=True):
            tensor.data = view


def buckets_of(tensors, ranks=1, nbytes=None):
    """Buckets for tensors in this order, cut by bucket_bounds at so many bytes, and where type or device change."""
    runs: list[list[Tensor]] = []
    for tensor in tensors:
        alike = runs and (runs[-1][-1].dtype, runs[-1][-1].device) == (tensor.dtype, tensor.device)
        runs[-1].append(tensor) if alike else runs.append([tensor])
    return [
        Bucket(run[start:end], ranks)
        for run in runs
        for start, end in bucket_bounds([tensor.data.nbytes for tensor in run], bucket=nbytes)
    ]
