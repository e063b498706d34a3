"""Rows for augment: images of all kinds of sizes, cuts that miss the image; numbers whose results are exact."""

from itertools import product

import numpy as np

from minigrad_kernels import augment
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST

from . import KernelCase, Output, Refusal


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
        cuts[:1], cuts[1:2] = 0, 2 * padding
        return cuts

    return draw


def flips(rng, shape):
    return rng.integers(0, 2, shape).astype(bool)


def flips_of_bytes(rng, shape):
    """Any number but 0 mirrors."""
    return rng.integers(0, 3, shape).astype(np.uint8)


def number(value):
    """A kind that stands for an argument between the arrays."""
    return lambda rng, shape: value


class CutCase(KernelCase):
    """A row of pad_crop_normalize, whose two numbers stand among the arrays."""

    def __str__(self):
        padding, edge = (kind(None, ()) for kind in self.kinds[4:6])
        return f"{super().__str__()} padding={padding} edge={edge}"


def row(images, batch, make=KernelCase, function="gather_normalize", between=()):
    """A row; `between`: (shape, kind) of what the function takes after the indices."""
    numbers = [(images[1:2], scales), (images[1:2], shifts)]
    arrays = [(images, pixels), ((batch,), f"index {images[0]}"), *between, *numbers]
    return make(
        family="augment",
        function=function,
        shapes=tuple(shape for shape, _ in arrays),
        params={},
        outputs=(Output((batch, *images[1:]), CHANNELS_LAST, "float32"),),
        layouts=(CHANNELS_LAST,),
        kinds=tuple(kind for _, kind in arrays),
        nan=(len(arrays) - 2, len(arrays) - 1) if batch else (),
    )


def cut(images, batch, padding, edge, mirror=flips):
    between = ((batch, 2), offsets(padding)), ((batch,), mirror), ((), number(padding)), ((), number(edge))
    return row(images, batch, CutCase, "pad_crop_normalize", between)


# Of CIFAR-10 and MNIST, small; of odd sizes; of many channels; of more channels than a tile holds; of one pixel.
SIZES = [(9, 3, 8, 8), (4, 1, 14, 14), (5, 3, 5, 7), (3, 10, 4, 6), (2, 257, 3, 2), (2, 260, 1, 3), (3, 4, 1, 1)]
CASES = [
    *(row(images, batch) for images in SIZES for batch in (1, 7)),
    row((2, 3, 32, 32), 11),
    row((5, 3, 4, 4), 0),
    *(cut(images, 6, padding, edge) for images, padding, edge in product(SIZES, (0, 2), (False, True))),
    *(cut((3, 3, 4, 6), 9, 7, edge, flips_of_bytes) for edge in (False, True)),  # cuts that miss the image wholly
    cut((2, 3, 32, 32), 11, 4, False),
    cut((5, 3, 4, 4), 0, 4, True),
]

X = np.zeros((3, 4, 4, 2), np.uint8).transpose(0, 3, 1, 2)
OUT = np.zeros((5, 4, 4, 2), np.float32).transpose(0, 3, 1, 2)
I, ONE = np.arange(5) % 3, np.ones(2, np.float32)
CUTS, FLIPS = np.zeros((5, 2), np.int64), np.zeros(5, bool)


def gather(x=X, indices=I, scale=ONE, shift=ONE, out=OUT):
    return lambda: augment.gather_normalize(x, indices, scale, shift, out)


def crop(cuts=CUTS, mirrored=FLIPS, padding=1, indices=I):
    return lambda: augment.pad_crop_normalize(X, indices, cuts, mirrored, padding, False, ONE, ONE, OUT)


WRONG = {
    "images of a list": (gather([1]), KindError, "backend: got builtins.list"),
    "images of floats": (gather(X.astype("f4")), KindError, "gather_normalize: images has type float32, wants uint8"),
    "one image": (gather(X[0]), ShapeError, "gather_normalize: images has shape (2, 4, 4), wants (N, C, H, W)"),
    "images in C order": (gather(X.copy("C")), ShapeError, "gather_normalize: images has strides"),
    "indices of 32 bits": (gather(indices=I.astype("i4")), KindError, "gather_normalize: indices has type int32"),
    "indices of a matrix": (
        gather(indices=CUTS),
        ShapeError,
        "gather_normalize: indices has shape (5, 2), wants (B,)",
    ),
    "one index": (gather(indices=np.array(1)), ShapeError, "gather_normalize: indices has shape (), wants (B,)"),
    "indices with gaps": (gather(indices=np.zeros(10, int)[::2]), ShapeError, "gather_normalize: indices has strides"),
    "an index too high": (
        gather(indices=I + 1),
        ShapeError,
        "gather_normalize: indices has numbers from 1 to 3, wants",
    ),
    "an index below 0": (gather(indices=I - 1), ShapeError, "gather_normalize: indices has numbers from -1 to 1, want"),
    "an index of no images": (
        gather(X[:0]),
        ShapeError,
        "gather_normalize: indices has numbers from 0 to 2, wants 0 t",
    ),
    "scale of doubles": (
        gather(scale=np.ones(2)),
        KindError,
        "gather_normalize: scale has type float64, wants float32",
    ),
    "shift of one": (gather(shift=ONE[:1]), ShapeError, "gather_normalize: shift has shape (1,), wants (2,)"),
    "out of doubles": (
        gather(out=OUT.astype("f8")),
        KindError,
        "gather_normalize: out has type float64, wants float32",
    ),
    "out too short": (gather(out=OUT[:4]), ShapeError, "gather_normalize: out has shape (4, 2, 4, 4), wants (5, 2, 4"),
    "out in C order": (gather(out=OUT.copy("C")), ShapeError, "gather_normalize: out has strides"),
    "offsets of one axis": (crop(CUTS[:, 0]), ShapeError, "pad_crop_normalize: offsets has shape (5,), wants (5, 2)"),
    "offsets of 32 bits": (crop(CUTS.astype("i4")), KindError, "pad_crop_normalize: offsets has type int32"),
    "an offset too high": (
        crop(CUTS + 3),
        ShapeError,
        "pad_crop_normalize: offsets has numbers from 3 to 3, wants 0 t",
    ),
    "an offset below 0": (crop(CUTS - 1), ShapeError, "pad_crop_normalize: offsets has numbers from -1 to -1, wants 0"),
    "flips of integers": (crop(mirrored=I), KindError, "pad_crop_normalize: flips has type int64, wants uint8"),
    "too few flips": (crop(mirrored=FLIPS[1:]), ShapeError, "pad_crop_normalize: flips has shape (4,), wants (5,)"),
    "padding of a float": (crop(padding=1.0), KindError, "pad_crop_normalize: padding is 1.0, wants an integer"),
    "padding of a flag": (crop(padding=True), KindError, "pad_crop_normalize: padding is True, wants an integer"),
    "padding below 0": (crop(padding=-1), ShapeError, "pad_crop_normalize: padding is -1, wants 0 to"),
    "index of a cut": (crop(indices=I + 1), ShapeError, "pad_crop_normalize: indices has numbers from 1 to 3, wants"),
}
REFUSALS = [Refusal(f"augment {name}", *row) for name, row in WRONG.items()]
