"""What the tests of the loader share."""

import numpy as np

from minigrad.data import Compose, Dataset, Flip, Normalize, PadCrop

PREFETCH = [0, 1, 3]
AUGMENT = Compose([PadCrop(1), Flip(), Normalize([0.5, 0.4], [0.2, 0.3])])


def numbered(n=23):
    """Images whose first pixel is the label, so that pairs can be checked."""
    images = np.random.default_rng(0).integers(0, 256, (n, 2, 4, 5), np.uint8)
    images[:, 0, 0, 0] = np.arange(n)
    return Dataset(images, np.arange(n), tuple(map(str, range(n))))


def arrays(loader):
    """The batches as pairs of NumPy arrays."""
    return ((images.numpy(), labels.numpy()) for images, labels in loader)


def labels_of(batches):
    return [labels.tolist() for _, labels in batches]


def assert_same_batches(got, want):
    got, want = list(got), list(want)
    assert len(got) == len(want)
    for (x, y), (u, v) in zip(got, want, strict=True):
        assert x.tobytes() == u.tobytes() and x.dtype == u.dtype
        np.testing.assert_array_equal(y, v)
