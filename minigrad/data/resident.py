"""A data set that lies on a device, and batches that are picked, augmented and normalised there by one kernel.

The host sends nothing but the order of an epoch and the random numbers of each batch, which are those that the
transforms draw on the CPU: the same images are cut at the same places on every device.
"""

from typing import NamedTuple

import numpy as np

from minigrad_kernels import augment
from minigrad_kernels.layout import CHANNELS_LAST

from .. import device as devices
from .transforms import Compose, Flip, Normalize, PadCrop

__all__ = ["Plan", "Resident", "plan_of"]

SHARE = 4  # a data set may take one part in so many of the memory that is free


class Plan(NamedTuple):
    """What is done to an image of bytes: padded and cut if padding, mirrored with probability flip, scaled, shifted."""

    padding: int
    edge: bool
    flip: float
    scale: np.ndarray
    shift: np.ndarray

    def draw(self, count, generator):
        """(offsets, flips) of so many images, drawn as the transforms draw them."""
        offsets, flips = np.zeros((count, 2), np.int64), np.zeros(count, np.uint8)
        if self.padding:
            offsets[:] = generator.integers(0, 2 * self.padding + 1, size=(2, count)).T
        if self.flip:
            flips[:] = generator.random(count) < self.flip
        return offsets, flips


def plan_of(transform, channels):
    """The Plan of PadCrop, Flip, Normalize, of some of them in this order, of no transform; None of anything else."""
    steps = list(transform.transforms) if type(transform) is Compose else [transform] * (transform is not None)
    padding, edge, flip = 0, False, 0.0
    scale, shift = np.full(channels, 1 / 255), np.zeros(channels)
    if steps and type(steps[0]) is PadCrop:
        padding, edge = steps[0].padding, steps.pop(0).mode == "edge"
    if steps and type(steps[0]) is Flip:
        flip = steps.pop(0).p
    if steps and type(steps[0]) is Normalize and len(steps[0].mean) == channels:
        step = steps.pop(0)
        scale, shift = 1 / (255 * np.array(step.std)), -np.array(step.mean) / np.array(step.std)
    if steps:
        return None
    return Plan(padding, edge, float(flip), scale.astype(np.float32), shift.astype(np.float32))


class Resident:
    """The images and labels of a data set on a device."""

    def __init__(self, dataset, place, plan):
        self.place, self.plan = place, plan
        self.images, self.labels = place.upload(dataset.images), place.upload(dataset.labels)
        self.scale, self.shift = place.upload(plan.scale), place.upload(plan.shift)
        self._epoch = None  # what `following` goes through: order, offsets, flips, and how many images are gone
        place.wait()  # batches may be made on any stream

    @staticmethod
    def fits(dataset, place):
        """Whether the images leave most of the free memory of the device to the network."""
        free = place.statistics().get("free_bytes")
        return free is None or dataset.images.nbytes * SHARE <= free

    def batch(self, picked, generator):
        """(images, labels) of indices that lie on the device."""
        with self.place.active("batch"):
            changes = self.plan.padding or self.plan.flip
            return self._made(picked, map(self.place.upload, self.plan.draw(len(picked), generator) if changes else ()))

    def _made(self, picked, drawn):
        out = devices.empty((len(picked), *self.images.shape[1:]), np.float32, CHANNELS_LAST, self.images)
        arguments, constants = (self.images, picked), (self.scale, self.shift, out)
        if drawn := tuple(drawn):
            augment.pad_crop_normalize(*arguments, *drawn, self.plan.padding, self.plan.edge, *constants)
        else:
            augment.gather_normalize(*arguments, *constants)
        return out, self.labels[picked]

    # ---- batches that the device counts by itself ------------------------------------------------------------------

    def begin(self, order, drawn):
        """Have `following` go through the images of this order, NumPy's, with their (offsets, flips).

        They are written to where those of the epoch before were, which a graph may read.
        """
        size = len(self.labels)
        with self.place.active():
            if self._epoch is None:
                kinds = ((size,), np.int64), ((size, 2), np.int64), ((size,), np.uint8), ((1,), np.int64)
                self._epoch = [devices.zeros(shape, dtype, like=self.place) for shape, dtype in kinds]
            devices.fill(self._epoch[3], 0)
            for own, values in zip(self._epoch, (order, *drawn), strict=False):
                if len(values):
                    devices.assign(own[: len(values)], values)

    def following(self, count):
        """(images, labels) of the next so many images; the device knows which, so a graph makes the next batch."""
        order, offsets, flips, gone = self._epoch
        with self.place.active("batch"):
            places = devices.arange(count, self.images) + gone
            picked = order.take(places)
            gone += count
            changes = self.plan.padding or self.plan.flip
            return self._made(picked, (offsets.take(places, 0), flips.take(places)) if changes else ())
