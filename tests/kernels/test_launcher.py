"""A launcher's statement: what it refuses, that plans are found for what they fit and nothing else, 16 bits."""

import gc
import weakref
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import conv2d, launcher, matmul, optimizer, softmax
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.launcher import EITHER, SUMS, flag, pair, reads, writes

from .kernel_runs import same_bits, told

PLANNED = []


@launcher.launcher(
    reads("x", "N C+ | N C+ H W"), writes("out", "N C", EITHER), reads("mask?", "C", SUMS), size=pair(1), relu=flag
)
def total(x, size, relu, out, workspace, mask=None):
    """A launcher whose plans note what they are made for, and whose calls note what they got."""
    PLANNED.append((x.shape, size))
    rows = x.shape[0]

    def run(x, size, relu, out, workspace, mask):
        out.fill(len(workspace(rows, x)) + size[1])

    return run


def space(nbytes, like):
    return np.empty(nbytes, np.uint8)


def call(x=(2, 3), size=(1, 2), relu=True, out=(2, 3), mask=None, kinds="ff"):
    x, out = (np.ones(shape, kind) for shape, kind in zip((x, out), kinds, strict=True))
    total(x, size, relu, out, space, mask)
    return out


def frozen(array):
    array.flags.writeable = False
    return array


REFUSED = [
    (dict(x=(3,)), ShapeError, r"x has shape \(3,\), wants \(N, C\) or \(N, C, H, W\) with C at least 1"),
    (dict(x=(2, 3, 4, 5)), ShapeError, "x has strides .* wants channels last"),
    (dict(kinds="df"), KindError, "out has type float32, wants float64"),
    (dict(mask=np.ones(3)), KindError, "mask has type float64, wants float32"),
    (dict(relu=1), KindError, "relu is 1, wants True or False"),
    (dict(size=(1, 2, 3)), KindError, "wants an integer or a pair"),
    (dict(size=(0, 2)), ShapeError, "wants at least 1"),
    (dict(size=(True, 2)), KindError, "wants an integer or a pair"),
]


def test_refuses_before_and_after_a_call_that_fits():
    """A plan that fits does not let through what only equals it."""
    for arguments, error, words in REFUSED:
        for _ in range(2):
            with told(words), pytest.raises(error, match="total: .*" + words):
                call(**arguments)
            assert (call() == 4).all()
    with pytest.raises(TypeError, match="missing a required argument: 'out'"):
        total(1, 2, 3, workspace=None)


def test_one_plan_for_arrays_that_lie_alike():
    PLANNED.clear()
    for size in ((2, 7), tuple([2, 7]), [2, 7]):
        assert (call(size=size) == 9).all()
    assert PLANNED == [((2, 3), (2, 7))] * 2  # a list can be no key
    call(x=(5, 3), out=(5, 3), size=(2, 7))
    call(size=4, mask=np.ones(3, "f"))
    assert PLANNED[2:] == [((5, 3), (2, 7)), ((2, 3), (4, 4))]
    with pytest.raises(ShapeError, match="out is read-only"):
        total(np.ones((2, 3), "f"), (2, 7), True, frozen(np.ones((2, 3), "f")), space)


def test_plans_are_few_and_keep_no_array_alive(monkeypatch):
    monkeypatch.setattr(launcher, "MOST", 3)
    plans = total.contract.plans
    plans.clear()
    for size in range(1, 9):
        call(size=(size, size))
    assert len(plans) <= 3
    x, w, out = (np.ones(shape, np.float32) for shape in ((1, 1, 4, 4), (1, 1, 3, 3), (1, 1, 2, 2)))
    conv2d.forward(x, w, None, False, 1, 0, 1, 1, out, space)
    gone = [weakref.ref(array) for array in (x, w, out)]
    del x, w, out
    gc.collect()
    assert not any(reference() is not None for reference in gone)


def test_targets_are_looked_at_in_every_call_and_before_anything_is_written():
    rows, classes = 3000, 20
    x, target = np.zeros((rows, classes), np.float32), np.arange(rows) % classes
    g, out, divisor = (np.ones((), np.float32)[...] for _ in range(3))
    sums, dx = np.empty(rows, np.float32), np.empty_like(x)
    calls = (
        lambda labels: softmax.cross_entropy_total(x, labels, -100, True, out, divisor, sums, space),
        lambda labels: softmax.cross_entropy_grad(g, x, labels, -100, sums, divisor, dx),
    )
    for each in calls:
        each(target)
    before = [array.copy() for array in (out, divisor, sums, dx)]
    for wrong, each in product((classes, -1, -(1 << 63), (1 << 63) - 1), calls):
        labels = np.where(np.arange(rows) == rows - 1, wrong, target)
        with pytest.raises(ShapeError, match=rf"target\[{rows - 1}\] = {wrong}, but there are {classes} classes"):
            each(labels)
    same_bits((out, divisor, sums, dx), before)


F = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("half", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_arrays_of_16_bits_without_kernels_of_their_own(half):
    """What ops give is in tests/ops/test_ops.py. Sums may be asked for unrounded, too large ones become infinite; lists
    are updated in place."""
    x, single, short = F.astype(half), np.empty((3, 3), "f4"), np.empty((3, 3), half)
    for out in (single, short):
        matmul.forward(x, x.T, None, False, out, space)
    np.testing.assert_allclose(single, x.astype("f8") @ x.T.astype("f8"), rtol=1e-6)
    np.testing.assert_array_equal(short, single.astype(half))
    huge = np.full((1, 2), np.finfo("f4").max if half.name == "bfloat16" else 300, half)
    matmul.forward(huge, huge.T, None, False, short[:1, :1], space)
    assert np.isinf(short[0, 0])
    p, g = [F.astype(half), F[0].astype(half)], [np.ones_like(F, half), np.ones(4, half)]
    buffers, wanted, plan = [np.zeros_like(one) for one in p], [one.astype("f4") for one in p], optimizer.Plan()
    for step in (0.25, 0.375):  # the plan sees new copies each time
        optimizer.sgd(p, g, buffers, np.array([0.25, 0, 0.5, 0, 0, 0, 0]), plan)  # rate and momentum
        wanted = [(one - step).astype(half).astype("f4") for one in wanted]
    same_bits([one.astype("f4") for one in p], wanted)
    same_bits(buffers, [np.full(buffer.shape, 1.5, half) for buffer in buffers])
