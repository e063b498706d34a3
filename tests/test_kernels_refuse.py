"""What the launchers of pooling, norms, softmax and elementwise kernels refuse, and that nothing is written then."""

import numpy as np
import pytest

from minigrad_kernels import bias, elementwise, norm, pool2d, softmax
from minigrad_kernels.elementwise import reference
from minigrad_kernels.errors import KindError, ShapeError

UNIT = (1, 1)


def image(*shape, dtype=np.float32):
    """An (N, C, H, W) array of ones, channels last."""
    n, c, h, w = shape
    return np.ones((n, h, w, c), dtype).transpose(0, 3, 1, 2)


def space(size):
    return np.empty(size, np.uint8)


def pooled(x=None, kernel=(2, 2), stride=(2, 2), padding=(0, 0), dilation=UNIT, out=None, positions=None):
    x = image(2, 3, 4, 4) if x is None else x
    out = image(2, 3, 2, 2) if out is None else out
    positions = image(2, 3, 2, 2, dtype=np.uint8) if positions is None else positions
    pool2d.max_forward(x, kernel, stride, padding, dilation, out, positions)


ROW = np.ones((3, 4), np.float32)
FILTERED = np.ones((2, 3, 4, 4), np.float32)  # C order, which 4-D kernels do not take


def entropy(target, ignore_index=-100):
    softmax.cross_entropy(ROW, target, ignore_index, np.ones(3, "f4"), np.ones(3, "f4"))


def normalized(x=ROW, mean=ROW[0], eps=0.1, out=ROW):
    norm.batch_normalize(x, mean, ROW[0].copy(), None, None, eps, None, False, out.copy(order="K"))


def shape_of(size=(4, 4), kernel=(2, 2), stride=(2, 2), padding=(0, 0), dilation=UNIT):
    return pool2d.output_shape("max_pool2d", (2, 3, *size), kernel, stride, padding, dilation, False)


table = pool2d.adaptive_windows(4, 2)


REFUSED = {
    "no array": (lambda: elementwise.relu([1.0], ROW), KindError, "backend: got builtins.list"),
    "integers": (lambda: elementwise.relu(ROW.astype(int), ROW), KindError, "x has type int64, wants float32 or"),
    "two types": (lambda: softmax.softmax(ROW.astype("f2"), ROW), KindError, "out has type float32, x float16"),
    "type of out": (lambda: elementwise.relu(ROW, ROW.astype("f8")), KindError, "out has type float64, wants"),
    "shape of out": (lambda: elementwise.relu(ROW, ROW[:2].copy()), ShapeError, r"out has shape \(2, 4\), wants"),
    "axes differ": (lambda: elementwise.relu(ROW, ROW.copy("F")), ShapeError, "wants no gaps and the axis order"),
    "gaps": (lambda: elementwise.relu(ROW[:, ::2], ROW[:, :2].copy()), ShapeError, "x .* wants no gaps"),
    "p": (lambda: elementwise.dropout(ROW, 1.5, 0, 0, ROW.copy()), ShapeError, "dropout: p = 1.5, wants 0 to 1"),
    "p NaN": (lambda: elementwise.dropout(ROW, np.nan, 0, 0, ROW.copy()), ShapeError, "p = nan"),
    "seed": (lambda: elementwise.dropout(ROW, 0.5, -1, 0, ROW.copy()), ShapeError, "seed = -1, wants 0 to 2"),
    "step": (lambda: elementwise.dropout(ROW, 0.5, 0, 1.5, ROW.copy()), KindError, "step is float"),
    "C order": (lambda: pooled(x=FILTERED), ShapeError, "x .* wants channels last"),
    "positions": (lambda: pooled(positions=image(2, 3, 2, 2)), KindError, "positions has type float32, wants uint8"),
    "size of out": (
        lambda: pooled(out=image(2, 3, 3, 2), positions=image(2, 3, 3, 2, dtype=np.uint8)),
        ShapeError,
        r"output has shape \(2, 3, 3, 2\), wants \(2, 3, 2, 2\)",
    ),
    "kernel": (lambda: pooled(kernel=(0, 2)), ShapeError, r"kernel_size is \(0, 2\), wants at least 1"),
    "kernel kind": (lambda: pooled(kernel=(2.0, 2)), KindError, "wants an integer or a pair"),
    "stride": (lambda: shape_of(stride=(0, 1)), ShapeError, "max_pool2d: stride is 0 along the height"),
    "dilation": (lambda: shape_of(dilation=(1, 0)), ShapeError, "dilation is 0 along the width"),
    "padding": (lambda: shape_of(padding=(0, 2)), ShapeError, r"padding is 2 along the width, wants 0 to 1"),
    "negative padding": (lambda: shape_of(padding=(-1, 0)), ShapeError, "padding is -1 along the height"),
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
    "vector": (lambda: softmax.softmax(ROW[0], ROW[0].copy()), ShapeError, r"wants \(rows, classes\)"),
    "no class": (lambda: softmax.softmax(ROW[:, :0], ROW[:, :0]), ShapeError, "at least one class"),
    "columns first": (lambda: softmax.softmax(ROW.copy("F"), ROW.copy()), ShapeError, "wants C order"),
    "target": (
        lambda: entropy(np.array([0, 3, 4])),
        ShapeError,
        r"target\[2\] = 4, but there are 4 classes \(0..3\)",
    ),
    "negative target": (lambda: entropy(np.array([0, -1, 1])), ShapeError, r"target\[1\] = -1"),
    "target type": (lambda: entropy(np.ones(3)), KindError, "target has type float64, wants int64"),
    "target shape": (lambda: entropy(np.ones(2, int)), ShapeError, r"target has shape \(2,\), wants \(3,\)"),
    "ignore_index": (lambda: entropy(np.ones(3, int), None), KindError, "ignore_index is NoneType"),
    "no channel": (lambda: normalized(x=ROW[:, :0]), ShapeError, "at least one channel"),
    "mean": (lambda: normalized(mean=ROW[0, :2]), ShapeError, r"mean has shape \(2,\), wants \(4,\)"),
    "3-D": (lambda: bias.column_sums(np.ones((2, 3, 4)), np.ones(3), space(999)), ShapeError, r"or \(N, C, H, W\)"),
    "workspace": (lambda: bias.column_sums(ROW, ROW[0].copy(), space(1)), ShapeError, "workspace has shape"),
    "workspace type": (lambda: bias.column_sums(ROW, ROW[0].copy(), np.ones(99)), KindError, "wants uint8"),
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
    assert elementwise.cpu.philox(*(np.uint64(word) for word in (*counter, *key))) == words


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
