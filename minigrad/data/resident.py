"""A data set that lies on a device, and batches that are picked, augmented and normalised there by one kernel.

The host sends nothing but the numbers of the images and the random numbers of each batch, which are those that the
transforms draw on the CPU: the same images are cut at the same places on every device.
"""

import numpy as np

from minigrad_kernels import augment
from minigrad_kernels.layout import CHANNELS_LAST

from .. import device as devices
from .transforms import Compose, Flip, Normalize, PadCrop

SHARE = 4  # a data set may take one part in so many of the memory that is free


def resident(dataset, place, transform):
    """The data set there; None if it is large, or the transform is not PadCrop, Flip, Normalize in this order.

    Each of the three may be absent.
    """
    steps = list(transform.transforms) if type(transform) is Compose else [transform] * (transform is not None)
    channels = dataset.images.shape[1]
    plan = [PadCrop(0), Flip(0), Normalize([0] * channels, [1] * channels)]  # these change nothing
    for number, same in enumerate(plan):
        if steps and type(steps[0]) is type(same):
            plan[number] = steps.pop(0)
    free = place.statistics().get("free_bytes")
    if steps or len(plan[-1].mean) != channels or free is not None and dataset.images.nbytes * SHARE > free:
        return None
    return Resident(dataset, place, *plan)


class Resident:
    """The images and labels of a data set on a device."""

    def __init__(self, dataset, place, crop, flip, normalize):
        self.place, self.crop, self.flip = place, crop, flip
        self.images, self.labels = place.upload(dataset.images), place.upload(dataset.labels)
        self.scale, self.shift = map(place.upload, normalize.factors(255))
        self._epoch = self._gone = None
        place.wait()  # batches may be made on any stream

    def drawn(self, picked, generator):
        """What a batch is made from, on the host: numbers of images, and what the transforms draw for them, if any."""
        if not self.crop.padding and not self.flip.p:
            return (picked,)
        return picked, self.crop.draw(len(picked), generator), self.flip.draw(len(picked), generator)

    def batch(self, picked, generator):
        """(images, labels) of these numbers of images."""
        with self.place.active():
            return self._made(*map(self.place.upload, self.drawn(picked, generator)))

    def _made(self, picked, *drawn):
        out = devices.empty((len(picked), *self.images.shape[1:]), np.float32, CHANNELS_LAST, self.images)
        kernel = augment.pad_crop_normalize if drawn else augment.gather_normalize
        how = (*drawn, self.crop.padding, self.crop.mode == "edge") if drawn else ()
        kernel(self.images, picked, *how, self.scale, self.shift, out)
        return out, self.labels[picked]

    # ---- batches that the device counts by itself ------------------------------------------------------------------

    def begin(self, *drawn):
        """Have `following` go through these images, as `drawn` gives them.

        They are written to where those of the epoch before were, which a graph may read.
        """
        with self.place.active():
            if self._epoch is None:
                shapes = [((len(self.labels), *part.shape[1:]), part.dtype) for part in drawn]
                self._epoch = [devices.zeros(*shape, like=self.place) for shape in shapes]
                self._gone = devices.zeros((1,), np.int64, like=self.place)  # how many images were made into batches
            devices.fill(self._gone, 0)
            for own, part in zip(self._epoch, drawn, strict=True):
                devices.assign(own[: len(part)], part)

    def following(self, count):
        """(images, labels) of the next so many images; the device knows which, so a graph makes the next batch."""
        with self.place.active():
            places = devices.arange(count, self.images) + self._gone
            self._gone += count
            return self._made(*[own.take(places, 0) for own in self._epoch])
