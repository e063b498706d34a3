"""Labelled images in memory."""

from dataclasses import dataclass

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, SubscriptError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense

from .seeds import checked_numbers, random_generator

__all__ = ["Dataset"]

STATISTICS_CHUNK = 1 << 22  # pixels counted at a time: counting widens each to 8 bytes


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images, their labels, and what they are.

    Shapes  images (N, C, H, W), lying channels last in memory (copied where they do not); labels (N,)
    Types   images uint8, labels int64 (other integers are converted), 0 to len(classes) - 1
    Units   mean and std, one number a channel, are of pixels scaled to 0..1; left out, they are those of the
            images
    Errors  ShapeError for a wrong shape or label, KindError for a wrong type

    dataset[indices] is the pair (images, labels) at these indices, as NumPy picks them.
    """

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    name: str = ""
    source: str = ""
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self):
        def put(field, value):
            object.__setattr__(self, field, value)

        if isinstance(self.classes, int):
            raise KindError(f"Dataset: classes is {self.classes!r}, want the names of all, such as range(10)")
        put("classes", tuple(str(name) for name in self.classes))
        put("images", _checked_images(self.images))
        put("labels", _checked_labels(self.labels, len(self.images), len(self.classes)))
        if self.mean is None or self.std is None:
            mean, std = _statistics(self.images)
            put("mean", mean if self.mean is None else self.mean)
            put("std", std if self.std is None else self.std)
        for field in ("mean", "std"):
            values = checked_numbers("Dataset", field, getattr(self, field))
            if len(values) != self.images.shape[1]:
                channels = self.images.shape[1]
                raise ShapeError(f"Dataset: {field} has {len(values)} numbers, images have {channels} channels")
            put(field, values)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, indices):
        picked = list(indices) if isinstance(indices, tuple) else indices  # NumPy takes a tuple for several axes
        try:
            return self.images[picked], self.labels[picked]
        except IndexError as error:
            raise SubscriptError(f"Dataset: {error} (the dataset has {len(self)} images)") from None

    def __repr__(self):
        n, *shape = self.images.shape
        return f"Dataset({self.name!r}, {n} images {tuple(shape)}, {len(self.classes)} classes)"

    def subset(self, indices):
        """The dataset of the images at these indices; name, source and statistics stay those of the whole."""
        images, labels = self[indices]
        if images.ndim < 4:
            images, labels = images[None], labels[None]
        return Dataset(images, labels, self.classes, self.name, self.source, self.mean, self.std)

    def split(self, fraction, seed):
        """Two disjoint datasets, the first with a random fraction (between 0 and 1) of the images.

        Both keep the order of the whole. Errors: ShapeError if either would be empty.
        """
        count = round(fraction * len(self)) if 0 < fraction < 1 else 0
        if not 0 < count < len(self):
            raise ShapeError(f"split: fraction {fraction} of {len(self)} images leaves one part empty")
        order = random_generator("split", seed).permutation(len(self))
        return self.subset(np.sort(order[:count])), self.subset(np.sort(order[count:]))


def _checked_images(images):
    images = np.asarray(images)
    if images.dtype != np.uint8:
        raise KindError(f"Dataset: images are {images.dtype}, want uint8, pixels 0..255: (255 * x).astype('uint8')")
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise ShapeError(f"Dataset: images have shape {images.shape}, want (N, C, H, W)")
    if is_dense(images, CHANNELS_LAST):
        return images
    return np.ascontiguousarray(images.transpose(CHANNELS_LAST)).transpose(0, 3, 1, 2)


def _checked_labels(labels, count, classes):
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise KindError(f"Dataset: labels are {labels.dtype}, want integers (the number of the class)")
    if labels.shape != (count,):
        raise ShapeError(f"Dataset: labels have shape {labels.shape}, want ({count},) for {count} images")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        at = wrong[0]
        raise ShapeError(f"Dataset: labels[{at}] = {labels[at]}, but there are {classes} classes (0..{classes - 1})")
    return labels.astype(np.int64, copy=False)


def _statistics(images):
    """Mean and standard deviation of each channel, of pixels scaled to 0..1, from exact integer counts."""
    means, stds = [], []
    for channel in range(images.shape[1]):
        counts = np.zeros(256, np.int64)
        rows = max(1, STATISTICS_CHUNK // (images.shape[2] * images.shape[3]))
        for start in range(0, len(images), rows):
            counts += np.bincount(images[start : start + rows, channel].ravel(), minlength=256)
        total = max(int(counts.sum()), 1)
        levels = np.arange(256) / 255
        mean = float((counts * levels).sum() / total)
        means.append(mean)
        stds.append(float(np.sqrt((counts * (levels - mean) ** 2).sum() / total)))
    return tuple(means), tuple(stds)
