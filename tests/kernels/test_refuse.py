"""Values that launchers refuse beyond arrays that are not as declared (test_kernels.py) and what ops refuse already."""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import augment, bias, elementwise, interpreter, matmul, norm, optimizer, pool2d
from minigrad_kernels.elementwise import reference
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain import implementation

from .kernel_runs import told

EPS, IGNORED = 1e-5, -100


def image(*shape, dtype=np.float32):
    """An (N, C, H, W) array of ones, channels last."""
    n, c, h, w = shape
    return np.ones((n, h, w, c), dtype).transpose(0, 3, 1, 2)


ROW, ONE, THREE, FOUR = (np.ones(shape, np.float32) for shape in ((3, 4), (), 3, 4))
LABELS = np.array([0, 1, 2])
TABLE = pool2d.adaptive_windows(4, 2)


def halves(one, other):
    return lambda: elementwise.relu_grad(ROW.astype(one), ROW.astype(other), ROW.astype(one))


def dropped(p=0.5, seed=0, step=0):
    return lambda: elementwise.dropout(ROW, p, seed, step, ROW.copy())


def pooled(x, size):
    arrays = image(*x), image(2, 3, *size), image(2, 3, *size, dtype=np.uint8)
    return lambda: pool2d.max_forward(arrays[0], (2, 2), (2, 2), (0, 0), (1, 1), *arrays[1:])


def windows(padding, dilation):
    return lambda: pool2d.output_shape("max_pool2d", (2, 3, 2, 2), (2, 2), (2, 2), padding, dilation, False)


def averaged(height, columns):
    return lambda: pool2d.average_forward(image(1, 1, height, 4), TABLE, TABLE, image(1, 1, 2, columns))


def multiplied(a, b):
    return lambda: matmul.forward(a, b, None, False, np.ones((2, 4), np.float32), None)


def cut(padding):
    images, out = image(3, 2, 4, 4, dtype=np.uint8), image(2, 2, 4, 4)
    given = np.array((0, 1)), np.full((2, 2), 0), np.zeros(2, int), padding
    return lambda: augment.pad_crop_normalize(images, *given, FOUR[:2], FOUR[:2], out)


def grouped(groups):
    x, statistics = image(3, 4, 2, 2), np.ones((2, 3, groups))
    return lambda: norm.group_norm(x, FOUR, FOUR, EPS, x.copy("K"), *statistics, None)


NO_KERNEL = "softmax.sparsemax: got minigrad_kernels.interpreter.array.Array, wants numpy.ndarray"
TURNED = np.ones((3, 2), np.float32).T, np.ones((4, 3), np.float32).T
REFUSED = [
    (lambda: implementation("minigrad_kernels.softmax", "sparsemax", interpreter.empty(1)), KindError, NO_KERNEL),
    (multiplied(interpreter.empty((2, 3)), TURNED[1]), KindError, "b is numpy.ndarray, wants minigrad_kernels.interp"),
    (lambda: elementwise.relu([1.0], ROW), KindError, "backend: got builtins.list"),
    (halves(np.float16, ml_dtypes.bfloat16), KindError, "out has type bfloat16, wants float16"),
    (lambda: bias.column_sums(ROW.astype("e"), FOUR.astype("e"), None), KindError, "type float16, wants float32"),
    (lambda: bias.column_sums(ROW[:, :0], FOUR[:0], None), ShapeError, r"wants \(N, C\).* with C at least 1"),
    (lambda: optimizer.squared_norms([ROW], np.empty(2), None), ShapeError, r"out has shape \(2,\), wants \(1,\)"),
    (dropped(p=1.5), ShapeError, "dropout: p = 1.5, wants 0 to 1"),
    (dropped(seed=-1), ShapeError, "seed is -1, wants 0 to"),
    (dropped(step=1.5), KindError, "step is 1.5, wants an integer"),
    (pooled((2, 3, 4, 4), (3, 2)), ShapeError, r"out has shape \(2, 3, 3, 2\), wants \(2, 3, 2, 2\)"),
    (windows((1, 1), (3, 3)), ShapeError, "covers no element"),
    (averaged(3, 2), ShapeError, "rows leaves the input"),
    (cut(-1), ShapeError, "padding is -1, wants 0 to"),
    (grouped(3), ShapeError, r"mean has shape \(3, 3\), wants \(N, groups\)"),
]


def test_refuses_and_takes_what_is_read_only():
    for call, error, words in REFUSED:
        with told(words), pytest.raises(error, match=words):
            call()
    x = np.array([[-1.0, 2.0]])
    x.flags.writeable = False
    elementwise.relu(x, out := np.empty_like(x))
    np.testing.assert_array_equal(out, [[0, 2]])


def test_philox_gives_the_published_words():
    """The known answers of Random123 (kat_vectors, philox4x32 10), for the reference of dropout's masks."""
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert reference.philox(*pi) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    ones = 0xFFFFFFFF
    assert reference.philox((ones,) * 4, (ones,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
