"""A data set that lies on a device, and batches that are picked, augmented and normalised there by one kernel.

The host sends one small array a batch: the numbers of the images, what the transforms draw for them on the CPU too,
and the labels. So the same images are cut at the same places on every device.
"""

import numpy as np

from minigrad_kernels import augment
from minigrad_kernels.layout import CHANNELS_LAST

from .. import device as devices
from .transforms import Compose, Flip, Normalize, PadCrop

SHARE = 4  # a data set may take one part in so many of the memory that is free


def resident(dataset, place, transform):
    """Send the images there; a function (numbers of images, generator) that makes (images, labels) there.

    None if the data set is large, or the transform is not PadCrop, Flip, Normalize in this order, of which each may be
    absent.
    """
    steps = list(transform.transforms) if type(transform) is Compose else [transform] * (transform is not None)
    channels = dataset.images.shape[1]
    plan = [PadCrop(0), Flip(0), Normalize([0] * channels, [1] * channels)]  # these change nothing
    for number, same in enumerate(plan):
        if steps and type(steps[0]) is type(same):
            plan[number] = steps.pop(0)
    crop, flip, normalize = plan
    free = place.statistics().get("free_bytes")
    if steps or len(normalize.mean) != channels or free is not None and dataset.images.nbytes * SHARE > free:
        return None
    whole, scale, shift = map(place.upload, (dataset.images, *normalize.factors(255)))
    place.wait()  # batches may be made on any stream

    def batch(picked, generator):
        drawn = *crop.draw(len(picked), generator), flip.draw(len(picked), generator)
        with place.active():
            sent = place.upload(np.array([picked, *drawn, dataset.labels[picked]]))
            images = devices.empty((len(picked), *whole.shape[1:]), np.float32, CHANNELS_LAST, whole)
            augment.pad_crop_normalize(whole, sent[0], sent[1:3], sent[3], crop.padding, scale, shift, images)
            return images, sent[4]

    return batch
