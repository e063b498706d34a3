"""Where the gradients of a model are cut into buckets, each exchanged by one collective.

Backward completes gradients one after another, those of the last layer first. What is complete can travel while
backward goes on, so gradients are exchanged in several pieces. Two costs pull against each other:

    each exchange begins with a latency, whatever its size: tiny buckets pay it too often
    a bucket waits for its last gradient: in one large bucket nothing travels before backward has ended

A middle way is about eight buckets of equal size. Both ends are smaller: the first, so that the network has work
early, and the last, because it is complete only when backward has ended and nothing is left to hide it behind.

Source  Li and others 2020, "PyTorch Distributed: experiences on accelerating data parallel training", section 3.2.3,
        for the buckets and the small first one
"""

import itertools

import numpy as np

from .. import device

SMALLEST, LARGEST = 1_000_000, 25_000_000  # bytes; below latency rules, above there is nothing left to gain
PARTS = 8  # into which gradients that are neither small nor large are cut


def bucket_bytes(total):
    """The size of a bucket for gradients of so many bytes in all, where nobody says another.

    Math    total / 8, at least 1 MB and at most 25 MB
    """
    return min(max(total // PARTS, SMALLEST), LARGEST)


def bucket_bounds(sizes, first=None, bucket=None):
    """Cut gradients that arrive one after another into buckets: a list of ranges (start, end), in this order.

    sizes   bytes of each gradient in the order of arrival, the reverse of the order of registration
    first   bytes after which the first bucket is full, and the most that the last one holds; default 1 MB, or
            `bucket` where that is less
    bucket  bytes after which the others are full; default bucket_bytes(sum(sizes))

    The last bucket takes as many of the last gradients as `first` allows, at least one. What comes before fills
    buckets one by one: one is full with the gradient that reaches its size, so a gradient is never divided, and a
    large one makes a large bucket. Gradients of at most `first` bytes together are one bucket. Nothing but the three
    arguments decides, so every rank cuts alike.
    """
    sizes = list(sizes)
    bucket = bucket_bytes(sum(sizes)) if bucket is None else bucket
    first = min(SMALLEST, bucket) if first is None else first
    if sum(sizes) <= first:
        return [(0, len(sizes))] if sizes else []
    tail = len(sizes) - 1
    while sum(sizes[tail - 1 :]) <= first:
        tail -= 1
    ends, held = [0], 0
    for end, size in enumerate(sizes[:tail], 1):
        held += size
        if held >= (first if len(ends) == 1 else bucket) or end == tail:
            ends.append(end)
            held = 0
    return list(itertools.pairwise([*ends, len(sizes)]))


# ---- flat memory: many tensors in one array, so that one collective carries them all --------------------------------


def view_of(flat, start, like):
    """The elements of a flat array from `start` on, in the shape of an array and lying as it lies."""
    order = device.order_of(like)
    shape = [like.shape[axis] for axis in order]
    return flat[start : start + like.size].reshape(shape).transpose(np.argsort(order).tolist())


class Bucket:
    """Tensors of one device and element type, and an array with a view for each.

    tensors     in the order in which they lie
    array       1-D, without gaps
    views       arrays of the shapes and layouts of the tensors
    """

    def __init__(self, tensors):
        self.tensors = list(tensors)
        first = self.tensors[0].array
        *starts, size = np.cumsum([0, *(tensor.array.size for tensor in self.tensors)]).tolist()
        self.array = device.zeros((size,), first.dtype, like=first)
        self.views = [view_of(self.array, start, t.array) for start, t in zip(starts, self.tensors, strict=True)]

    def gather(self, values):
        """Copy arrays to their places, unless they lie there already."""
        for value, view in zip(values, self.views, strict=True):
            if value is not view:
                device.assign(view, value)

    def scatter(self):
        """Make the tensors, leaves all, look at their places."""
        for tensor, view in zip(self.tensors, self.views, strict=True):
            tensor.data = view


def buckets_of(tensors, nbytes=None):
    """Buckets for tensors in this order, cut by bucket_bounds at so many bytes, and where type or device change."""
    alike = itertools.groupby(tensors, lambda tensor: (tensor.dtype, tensor.device))
    runs = [list(run) for _, run in alike]
    return [
        Bucket(run[start:end])
        for run in runs
        for start, end in bucket_bounds([tensor.array.nbytes for tensor in run], bucket=nbytes)
    ]
