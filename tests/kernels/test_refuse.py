"""Values that launchers refuse, besides arrays that are not as declared (see test_kernels.py), and read-only arrays."""

import numpy as np
import pytest

from minigrad_kernels import augment, bias, elementwise, norm, pool2d, softmax
from minigrad_kernels.elementwise import reference
from minigrad_kernels.errors import KindError, ShapeError

from .kernel_runs import told

UNIT, EPS, IGNORED = (1, 1), 1e-5, -100


def image(*shape, dtype=np.float32):
    """An (N, C, H, W) array of ones, channels last."""
    n, c, h, w = shape
    return np.ones((n, h, w, c), dtype).transpose(0, 3, 1, 2)


ROW, ONE, THREE, FOUR = (np.ones(shape, np.float32) for shape in ((3, 4), (), 3, 4))
SPACE, LABELS = np.empty(1 << 12, np.uint8), np.array([0, 1, 2])
TABLE = pool2d.adaptive_windows(4, 2)


def dropped(p=0.5, seed=0, step=0):
    return lambda: elementwise.dropout(ROW, p, seed, step, ROW.copy())


def pooled(x, size):
    arrays = image(*x), image(2, 3, *size), image(2, 3, *size, dtype=np.uint8)
    return lambda: pool2d.max_forward(arrays[0], (2, 2), (2, 2), (0, 0), UNIT, *arrays[1:])


def windows(size=(4, 4), padding=(0, 0), dilation=UNIT):
    return lambda: pool2d.output_shape("max_pool2d", (2, 3, *size), (2, 2), (2, 2), padding, dilation, False)


def averaged(height, columns):
    return lambda: pool2d.average_forward(image(1, 1, height, 4), TABLE, TABLE, image(1, 1, 2, columns))


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


REFUSED = [
    (lambda: elementwise.relu([1.0], ROW), KindError, "backend: got builtins.list"),
    (dropped(p=1.5), ShapeError, "dropout: p = 1.5, wants 0 to 1"),
    (dropped(p=np.nan), ShapeError, "p = nan"),
    (dropped(seed=-1), ShapeError, "seed is -1, wants 0 to"),
    (dropped(step=1.5), KindError, "step is 1.5, wants an integer"),
    (pooled((2, 3, 4, 4), (3, 2)), ShapeError, r"out has shape \(2, 3, 3, 2\), wants \(2, 3, 2, 2\)"),
    (windows(padding=(0, 2)), ShapeError, r"padding is 2 along the width, wants 0 to 1"),
    (windows(size=(1, 4)), ShapeError, "x has height 1 .* too small for kernel_size 2"),
    (windows(size=(4, 0)), ShapeError, "x has width 0"),
    (windows(size=(2, 2), padding=UNIT, dilation=(3, 3)), ShapeError, "covers no element"),
    (averaged(3, 2), ShapeError, "rows leaves the input"),
    (averaged(4, 3), ShapeError, r"columns has shape \(2, 3\), wants \(3, 3\)"),
    (loss([0, 3, 4]), ShapeError, r"target\[2\] = 4, but there are 4 classes \(0..3\)"),
    (loss([0, -1, 1]), ShapeError, r"target\[1\] = -1"),
    (total(mean=1), KindError, "cross_entropy: mean is 1, wants True or False"),
    (total(space=SPACE[:9]), ShapeError, r"workspace has shape \(9,\), wants .* bytes; see softmax.workspace"),
    (cut(indices=(0, 3)), ShapeError, "indices has numbers from 0 to 3, wants 0 to 2"),
    (cut(indices=(0, -1)), ShapeError, "indices has numbers from -1 to 0"),
    (cut(offsets=3), ShapeError, "offsets has numbers from 3 to 3, wants 0 to 2"),
    (cut(padding=-1), ShapeError, "padding is -1, wants 0 to"),
    (cut(padding=True), KindError, "padding is True, wants an integer"),
    (grads(out=ROW), ShapeError, "dx is None beside out"),
    (grads(dresidual=ROW), ShapeError, "dresidual is given without out"),
    (grouped(3), ShapeError, r"mean has shape \(3, 3\), wants \(N, groups\)"),
    (grouped(2, SPACE[:9]), ShapeError, "group_norm: workspace has shape"),
    (lambda: bias.column_sums(ROW[:, :0], FOUR[:0], SPACE), ShapeError, r"wants \(N, C\).* with C at least 1"),
]


def test_refuses():
    for call, error, words in REFUSED:
        with told(words), pytest.raises(error, match=words):
            call()


def test_a_refused_target_writes_nothing():
    losses, logsumexp = np.full(3, 7.0), np.full(3, 7.0)
    with pytest.raises(ShapeError):
        softmax.cross_entropy(ROW.astype(float), np.array([0, 1, 9]), IGNORED, losses, logsumexp)
    assert (losses == 7).all() and (logsumexp == 7).all()


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
