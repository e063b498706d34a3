"""What the launchers of pooling, softmax and elementwise kernels refuse beside what they declare, and draws."""

import numpy as np
import pytest

from minigrad_kernels import elementwise, pool2d, softmax
from minigrad_kernels.elementwise import reference
from minigrad_kernels.errors import KindError, ShapeError

UNIT = (1, 1)


def image(*shape, dtype=np.float32):
    """An (N, C, H, W) array of ones, channels last."""
    n, c, h, w = shape
    return np.ones((n, h, w, c), dtype).transpose(0, 3, 1, 2)


def pooled(x=None, out=None, positions=None):
    x = image(2, 3, 4, 4) if x is None else x
    out = image(2, 3, 2, 2) if out is None else out
    positions = image(2, 3, 2, 2, dtype=np.uint8) if positions is None else positions
    pool2d.max_forward(x, (2, 2), (2, 2), (0, 0), UNIT, out, positions)


ROW = np.ones((3, 4), np.float32)
FILTERED = np.ones((2, 3, 4, 4), np.float32)  # C order, which 4-D kernels do not take


def entropy(target, ignore_index=-100):
    softmax.cross_entropy(ROW, target, ignore_index, np.ones(3, "f4"), np.ones(3, "f4"))


def shape_of(size=(4, 4), padding=(0, 0), dilation=UNIT):
    return pool2d.output_shape("max_pool2d", (2, 3, *size), (2, 2), (2, 2), padding, dilation, False)


table = pool2d.adaptive_windows(4, 2)


REFUSED = {
    "no array": (lambda: elementwise.relu([1.0], ROW), KindError, "backend: got builtins.list"),
    "axes differ": (lambda: elementwise.relu(ROW, ROW.copy("F")), ShapeError, "out has strides .* wants C order"),
    "gaps": (lambda: elementwise.relu(ROW[:, ::2], ROW[:, :2].copy()), ShapeError, "x has strides .* wants C order"),
    "p": (lambda: elementwise.dropout(ROW, 1.5, 0, 0, ROW.copy()), ShapeError, "dropout: p = 1.5, wants 0 to 1"),
    "p NaN": (lambda: elementwise.dropout(ROW, np.nan, 0, 0, ROW.copy()), ShapeError, "p = nan"),
    "seed": (lambda: elementwise.dropout(ROW, 0.5, -1, 0, ROW.copy()), ShapeError, "seed is -1, wants 0 to"),
    "step": (lambda: elementwise.dropout(ROW, 0.5, 0, 1.5, ROW.copy()), KindError, "step is 1.5, wants an integer"),
    "C order": (lambda: pooled(x=FILTERED), ShapeError, "x .* wants channels last"),
    "positions": (lambda: pooled(positions=image(2, 3, 2, 2)), KindError, "positions has type float32, wants uint8"),
    "size of out": (
        lambda: pooled(out=image(2, 3, 3, 2), positions=image(2, 3, 3, 2, dtype=np.uint8)),
        ShapeError,
        r"out has shape \(2, 3, 3, 2\), wants \(2, 3, 2, 2\)",
    ),
    "padding": (lambda: shape_of(padding=(0, 2)), ShapeError, r"padding is 2 along the width, wants 0 to 1"),
    "small": (lambda: shape_of(size=(1, 4)), ShapeError, "x has height 1 .* too small for kernel_size 2"),
    "empty": (lambda: shape_of(size=(4, 0)), ShapeError, "x has width 0"),
    "void": (lambda: shape_of(size=(2, 2), padding=UNIT, dilation=(3, 3)), ShapeError, "covers no element"),
    "rows": (
        lambda: pool2d.average_forward(image(1, 1, 3, 4), table, table, image(1, 1, 2, 2)),
        ShapeError,
        "rows leaves the input",
    ),
    "columns": (
        lambda: pool2d.average_forward(image(1, 1, 4, 4), table, table, image(1, 1, 2, 3)),
        ShapeError,
        r"columns has shape \(2, 3\), wants \(3, 3\)",
    ),
    "target": (
        lambda: entropy(np.array([0, 3, 4])),
        ShapeError,
        r"target\[2\] = 4, but there are 4 classes \(0..3\)",
    ),
    "negative target": (lambda: entropy(np.array([0, -1, 1])), ShapeError, r"target\[1\] = -1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call()


def test_refuses_to_write_to_a_read_only_array():
    out = ROW.copy()
    out.flags.writeable = False
    with pytest.raises(ShapeError, match="relu: out is read-only"):
        elementwise.relu(ROW, out)


def test_a_refused_target_writes_nothing():
    losses, logsumexp = np.full(3, 7.0), np.full(3, 7.0)
    with pytest.raises(ShapeError):
        softmax.cross_entropy(ROW.astype(float), np.array([0, 1, 9]), -100, losses, logsumexp)
    assert (losses == 7).all() and (logsumexp == 7).all()


def test_read_only_inputs_are_taken():
    x = np.array([[-1.0, 2.0]])
    x.flags.writeable = False
    out = np.empty_like(x)
    elementwise.relu(x, out)
    np.testing.assert_array_equal(out, [[0, 2]])


@pytest.mark.parametrize(
    "counter, key, words",
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, words):
    """The known answers of Random123 (kat_vectors, philox4x32 10)."""
    assert tuple(reference.philox(counter, key)) == words


def test_dropout_has_one_mask_for_both_types():
    masks = []
    for dtype in (np.float32, np.float64):
        out = np.empty(10_001, dtype)
        elementwise.dropout(np.ones(10_001, dtype), 0.3, 5, 6, out)
        masks.append(out != 0)
    np.testing.assert_array_equal(*masks)
    # Five standard deviations of a binomial count.
    assert abs(masks[0].mean() - 0.7) < 5 * (0.21 / 10_001) ** 0.5


def test_dropout_masks_of_other_steps_and_seeds_differ():
    outputs = []
    for seed, step in ((1, 1), (1, 2), (2, 1), (1, 1)):
        out = np.empty(1000)
        elementwise.dropout(np.ones(1000), 0.5, seed, step, out)
        outputs.append(out != 0)
    assert (outputs[0] != outputs[1]).any() and (outputs[0] != outputs[2]).any()
    np.testing.assert_array_equal(outputs[0], outputs[3])
