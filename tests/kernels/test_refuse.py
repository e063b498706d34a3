"""Values that launchers refuse, besides arrays that are not as declared (see test_kernels.py), and read-only arrays."""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import augment, bias, conv2d, elementwise, interpreter, matmul, norm, pool2d, softmax
from minigrad_kernels.elementwise import reference
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import FILTER
from minigrad_kernels.toolchain import implementation

from .kernel_runs import laid_out, told

UNIT, EPS, IGNORED = (1, 1), 1e-5, -100


def image(*shape, dtype=np.float32):
    """An (N, C, H, W) array of ones, channels last."""
    n, c, h, w = shape
    return np.ones((n, h, w, c), dtype).transpose(0, 3, 1, 2)


ROW, ONE, THREE, FOUR = (np.ones(shape, np.float32) for shape in ((3, 4), (), 3, 4))
SPACE, LABELS = np.empty(1 << 12, np.uint8), np.array([0, 1, 2])
TABLE = pool2d.adaptive_windows(4, 2)


def halves(one, other):
    return lambda: elementwise.relu_grad(ROW.astype(one), ROW.astype(other), ROW.astype(one))


def dropped(p=0.5, seed=0, step=0):
    return lambda: elementwise.dropout(ROW, p, seed, step, ROW.copy())


def pooled(x, size):
    arrays = image(*x), image(2, 3, *size), image(2, 3, *size, dtype=np.uint8)
    return lambda: pool2d.max_forward(arrays[0], (2, 2), (2, 2), (0, 0), UNIT, *arrays[1:])


def windows(size=(4, 4), padding=(0, 0), dilation=UNIT):
    return lambda: pool2d.output_shape("max_pool2d", (2, 3, *size), (2, 2), (2, 2), padding, dilation, False)


def averaged(height, columns):
    return lambda: pool2d.average_forward(image(1, 1, height, 4), TABLE, TABLE, image(1, 1, 2, columns))


def convolved(x=None, w=(2, 3, 3, 3), out=(1, 2, 2, 2), stride=UNIT, residual=None, space=SPACE):
    x, w = image(1, 3, 4, 4) if x is None else x, laid_out(np.ones(w, np.float32), FILTER)
    return lambda: conv2d.forward(x, w, None, False, stride, (0, 0), UNIT, 1, image(*out), space, residual)


def shaped(x=(2, 3, 8, 8), w=(4, 3, 3, 3), bias=None, dilation=UNIT, groups=1):
    return lambda: conv2d.output_shape(x, w, bias, UNIT, (0, 0), dilation, groups)


def multiplied(a=(2, 3), b=(3, 4), out=(2, 4), bias=None, space=SPACE):
    a, b, out = (np.ones(given, np.float32) if isinstance(given, tuple) else given for given in (a, b, out))
    return lambda: matmul.forward(a, b, bias, False, out, space)


def loss(target):
    return lambda: softmax.cross_entropy(ROW, np.array(target), IGNORED, THREE.copy(), THREE.copy())


def total(mean=True, space=SPACE):
    outputs = ONE.copy(), ONE.copy(), THREE.copy()
    return lambda: softmax.cross_entropy_total(ROW, LABELS, IGNORED, mean, *outputs, space)


def cut(indices=(0, 1), offsets=0, padding=1):
    images, out = image(3, 2, 4, 4, dtype=np.uint8), image(2, 2, 4, 4)
    given = np.array(indices), np.full((2, 2), offsets), np.zeros(2, bool), padding, False
    return lambda: augment.pad_crop_normalize(images, *given, FOUR[:2], FOUR[:2], out)


def grads(out=None, dx=None, dresidual=None):
    return lambda: norm.batch_norm_grads(
        ROW, ROW, FOUR, FOUR, FOUR, EPS, out, dx, FOUR.copy(), FOUR.copy(), dresidual, SPACE
    )


def grouped(groups, space=SPACE):
    x, statistics = image(3, 4, 2, 2), np.ones((2, 3, groups))
    return lambda: norm.group_norm(x, FOUR, FOUR, EPS, x.copy("K"), *statistics, space)


NO_KERNEL = "softmax.sparsemax: got minigrad_kernels.interpreter.array.Array, wants numpy.ndarray"
REFUSED = [
    (lambda: implementation("minigrad_kernels.softmax", "sparsemax", interpreter.empty(1)), KindError, NO_KERNEL),
    (shaped(w=(8, 1, 3, 3)), ShapeError, r"x has 3 channels \(shape \(2, 3, 8, 8\)\), w takes 1 and makes 8"),
    (
        shaped(w=(4, 1, 3, 3), groups=3),
        ShapeError,
        r"w takes 3 and makes 4 \(shape \(4, 1, 3, 3\)\) with groups=3; wan",
    ),
    (shaped(dilation=(1, 4)), ShapeError, r"w reaches over \(3, 9\) \(shape \(4, 3, 3, 3\), dilation \(1, 4\)\)"),
    (convolved(stride=(1, 0)), ShapeError, r"stride is \(1, 0\), wants at least 1"),
    (multiplied((3,)), ShapeError, r"a has shape \(3,\), wants at least 2 axes"),
    (multiplied((2, 5)), ShapeError, r"a has 5 columns \(shape \(2, 5\)\), b has 3 rows \(shape \(3, 4\)\)"),
    (multiplied((2, 2, 3), (3, 3, 4)), ShapeError, r"the leading axes \(2,\) and \(3,\) do not broadcast"),
    (multiplied(out=(2, 5)), ShapeError, r"a \(2, 3\) and b \(3, 4\) do not give out \(2, 5\)"),
    (multiplied(np.ones((3, 2), "f").T, np.ones((4, 3), "f").T, space=SPACE[:0]), ShapeError, "workspace has shape"),
    (
        multiplied(interpreter.empty((2, 3))),
        KindError,
        "matmul: b is numpy.ndarray, wants minigrad_kernels.interpreter",
    ),
    (lambda: elementwise.relu([1.0], ROW), KindError, "backend: got builtins.list"),
    (halves(np.float16, ml_dtypes.bfloat16), KindError, "out has type bfloat16, wants float16"),
    (lambda: bias.column_sums(ROW.astype("e"), FOUR.astype("e"), SPACE), KindError, "type float16, wants float32"),
    (dropped(p=1.5), ShapeError, "dropout: p = 1.5, wants 0 to 1"),
    (dropped(seed=-1), ShapeError, "seed is -1, wants 0 to"),
    (dropped(step=1.5), KindError, "step is 1.5, wants an integer"),
    (pooled((2, 3, 4, 4), (3, 2)), ShapeError, r"out has shape \(2, 3, 3, 2\), wants \(2, 3, 2, 2\)"),
    (windows(padding=(0, 2)), ShapeError, r"padding is 2 along the width, wants 0 to 1"),
    (windows(size=(1, 4)), ShapeError, "x has height 1 .* too small for kernel_size 2"),
    (windows(size=(2, 2), padding=UNIT, dilation=(3, 3)), ShapeError, "covers no element"),
    (averaged(3, 2), ShapeError, "rows leaves the input"),
    (loss([0, 3, 4]), ShapeError, r"target\[2\] = 4, but there are 4 classes \(0..3\)"),
    (total(space=SPACE[:9]), ShapeError, r"workspace has shape \(9,\), wants .* bytes; see softmax.workspace"),
    (cut(padding=-1), ShapeError, "padding is -1, wants 0 to"),
    (grads(out=ROW), ShapeError, "dx is None beside out"),
    (grouped(3), ShapeError, r"mean has shape \(3, 3\), wants \(N, groups\)"),
    (grouped(2, SPACE[:9]), ShapeError, "group_norm: workspace has shape"),
    (lambda: bias.column_sums(ROW[:, :0], FOUR[:0], SPACE), ShapeError, r"wants \(N, C\).* with C at least 1"),
]


def test_refuses():
    for call, error, words in REFUSED:
        with told(words), pytest.raises(error, match=words):
            call()


def test_read_only_inputs_are_taken():
    x = np.array([[-1.0, 2.0]])
    x.flags.writeable = False
    out = np.empty_like(x)
    elementwise.relu(x, out)
    np.testing.assert_array_equal(out, [[0, 2]])


def test_philox_gives_the_published_words():
    """The known answers of Random123 (kat_vectors, philox4x32 10), for the reference of dropout's masks."""
    for counter, key, words in (
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ):
        assert tuple(reference.philox(counter, key)) == words
