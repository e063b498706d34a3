"""Rows for augment: images of all kinds of sizes, cuts that miss the image; numbers whose results are exact."""

import numpy as np

from minigrad_kernels.layout import CHANNELS_LAST

from . import KernelCase, Output


def pixels(rng, shape):
    return rng.integers(0, 256, shape, np.uint8)


def scales(rng, shape):
    """Of both signs, by which a byte is multiplied without rounding."""
    return rng.choice(np.array([-2, -0.5, 0.25, 1, 4], np.float32), shape)


def shifts(rng, shape):
    return rng.integers(-8, 9, shape).astype(np.float32)


def offsets(padding):
    """A kind: cuts anywhere, the two corners among them."""

    def draw(rng, shape):
        cuts = rng.integers(0, 2 * padding + 1, shape)
        cuts[:, :1], cuts[:, 1:2] = 0, 2 * padding
        return cuts

    return draw


def flips(rng, shape):
    """Any number but 0 mirrors."""
    return rng.integers(0, 3, shape)


def padding_between(inputs, params):
    *others, scale, shift = inputs
    return *others, *params.values(), scale, shift


def cut(images, batch, padding):
    numbers = ((batch,), f"index {images[0]}"), ((2, batch), offsets(padding)), ((batch,), flips)
    arrays = [(images, pixels), *numbers, (images[1:2], scales), (images[1:2], shifts)]
    return KernelCase(
        family="augment",
        function="pad_crop_normalize",
        shapes=tuple(shape for shape, _ in arrays),
        params=dict(padding=padding),
        arrange=padding_between,
        outputs=(Output((batch, *images[1:]), CHANNELS_LAST, "float32"),),
        layouts=(CHANNELS_LAST,),
        kinds=tuple(kind for _, kind in arrays),
        nan=(4, 5) if batch else (),
    )


# Of CIFAR-10 and MNIST, small; of odd sizes; of many channels; of more channels than a tile holds; of one pixel.
SIZES = [(9, 3, 8, 8), (4, 1, 14, 14), (5, 3, 5, 7), (3, 10, 4, 6), (2, 257, 3, 2), (2, 260, 1, 3), (3, 4, 1, 1)]
CASES = [
    *(cut(images, batch, padding) for images in SIZES for batch, padding in ((1, 0), (6, 2))),
    cut((3, 3, 4, 6), 9, 7),  # cuts that miss the image wholly
    cut((2, 3, 32, 32), 11, 4),
    cut((5, 3, 4, 4), 0, 4),
]
