"""Labelled images in memory."""

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST

from ..core.check import integer_of
from .transforms import per_channel


class Dataset:
    """Images, their labels, and what they are.

    Shapes  images (N, C, H, W), lying channels last in memory (copied where they do not); labels (N,)
    Types   images uint8, labels int64 (other integers are converted), 0 to len(classes) - 1
    Units   mean and std, one number a channel, are of pixels scaled to 0..1; left out, they are those of the
            images
    Errors  ShapeError for a wrong shape or label, KindError for a wrong type

    dataset[indices] is the pair (images, labels) at these indices, as NumPy picks them.
    """

    def __init__(self, images, labels, classes, name="", source="", mean=None, std=None):
        if isinstance(classes, int):
            raise KindError(f"Dataset: classes is {classes}, wanted the names of all, such as range(10)")
        self.images = images = _checked_images(images)
        self.classes, self.name, self.source = tuple(map(str, classes)), name, source
        self.labels = _checked_labels(labels, len(images), len(self.classes))
        own = statistics(images) if mean is None or std is None else (mean, std)
        self.mean = per_channel("Dataset", "mean", own[0] if mean is None else mean, images.shape[1])
        self.std = per_channel("Dataset", "std", own[1] if std is None else std, images.shape[1])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, indices):
        return self.images[indices], self.labels[indices]

    def __repr__(self):
        n, *shape = self.images.shape
        return f"Dataset({self.name!r}, {n} images {tuple(shape)}, {len(self.classes)} classes)"

    def subset(self, indices):
        """The dataset of the images at these indices; name, source and statistics stay those of the whole."""
        return Dataset(*self[indices], self.classes, self.name, self.source, self.mean, self.std)

    def split(self, fraction, seed):
        """Two disjoint datasets, the first with a random fraction (between 0 and 1) of the images.

        Both keep the order of the whole. Errors: ShapeError if either would be empty.
        """
        count = round(fraction * len(self)) if 0 < fraction < 1 else 0
        if not 0 < count < len(self):
            raise ShapeError(f"split: fraction {fraction} of {len(self)} images leaves one part empty")
        order = random_generator(integer_of("split", "seed", seed, 0)).permutation(len(self))
        return self.subset(np.sort(order[:count])), self.subset(np.sort(order[count:]))


def random_generator(seed, *key):
    """The generator of this seed and key (integers from 0), the same on every machine; each key has its own stream."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))


def _checked_images(images):
    images = np.asarray(images)
    if images.dtype != np.uint8:
        advice = "x.astype('uint8')" if images.dtype.kind in "iu" else "(255 * x).astype('uint8') if they are 0..1"
        raise KindError(f"Dataset: images are {images.dtype}, wanted uint8, pixels 0..255: {advice}")
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise ShapeError(f"Dataset: images have shape {images.shape}, wanted (N, C, H, W)")
    return np.ascontiguousarray(images.transpose(CHANNELS_LAST)).transpose(0, 3, 1, 2)


def _checked_labels(labels, count, classes):
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise KindError(f"Dataset: labels are {labels.dtype}, wanted integers (the number of the class)")
    if labels.shape != (count,):
        raise ShapeError(f"Dataset: labels have shape {labels.shape}, wanted ({count},) for {count} images")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        at = wrong[0]
        raise ShapeError(f"Dataset: labels[{at}] = {labels[at]}, but there are {classes} classes (0..{classes - 1})")
    return labels.astype(np.int64, copy=False)


def statistics(images):
    """Mean and standard deviation of each channel, of pixels scaled to 0..1, from exact sums of integers."""
    count = max(images[:, 0].size, 1)
    mean = images.sum((0, 2, 3), dtype=np.int64) / count
    squares = np.einsum("nchw,nchw->c", images, images, dtype=np.int64) / count
    return tuple((mean / 255).tolist()), tuple((np.sqrt(squares - mean**2) / 255).tolist())
