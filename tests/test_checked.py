"""What checks gave is found again for the same settings, and for nothing that only equals them."""

import numpy as np
import pytest

from minigrad import Tensor, ops
from minigrad.core.create import zeros
from minigrad_kernels import bias, conv2d, matmul, softmax
from minigrad_kernels.checked import Checked, layouts
from minigrad_kernels.errors import KindError, ShapeError


def test_found_by_the_same_objects_alone():
    known, setting = Checked(), (300, 400)
    assert known.keep((2, 3), (setting, 1), "result") == "result"
    assert known.found((2, 3), (setting, 1)) == "result"
    assert known.found((2, 4), (setting, 1)) is None
    assert known.found((2, 3), (setting, True)) is None
    assert known.found((2, 3), (tuple([300, 400]), 1)) is None  # equal, but made anew
    assert known.found((2, 3), ((300.0, 400.0), 1)) is None


def test_what_could_change_is_not_kept():
    known = Checked()
    for setting in ([1, 1], (1, [1]), 1.0, (1.0, 1)):
        known.keep((), (setting,), "result")
        assert known.found((), (setting,)) is None


def test_it_does_not_grow_without_end():
    known = Checked()
    for size in range(3 * Checked.MOST):
        known.keep((size,), (1,), size)
    assert len(known._kept) <= Checked.MOST
    assert known.found((3 * Checked.MOST - 1,), (1,)) == 3 * Checked.MOST - 1


def test_a_wrong_kind_is_refused_after_the_right_one_was_seen():
    images, filters = zeros((1, 2, 8, 8)), zeros((4, 2, 3, 3))
    for _ in range(2):
        assert ops.conv2d(images, filters, stride=1).shape == (1, 4, 6, 6)
        assert ops.max_pool2d(images, 2, 2).shape == (1, 2, 4, 4)
    for stride in (True, 1.0, (True, 1), (1, 1.0)):
        with pytest.raises(KindError, match="stride"):
            ops.conv2d(images, filters, stride=stride)
        with pytest.raises(KindError, match="stride"):
            ops.max_pool2d(images, 2, stride)
    with pytest.raises(KindError, match="groups"):
        ops.conv2d(images, filters, groups=True)
    with pytest.raises(KindError, match="bias is a ndarray"):
        ops.conv2d(images, filters, zeros((4,)).numpy())
    assert isinstance(ops.conv2d(images, filters), Tensor)


def test_layouts_tell_apart_what_checks_tell_apart():
    x = np.zeros((2, 3), np.float32)
    others = [x.T, x[:, :2], x.astype(np.float64), x.astype(">f4"), x.reshape(3, 2), x[:, ::-1]]
    known = [layouts("op", array) for array in (x, *others)]
    assert len({*known}) == len(known) and layouts("op", x.copy()) == known[0] != layouts("other", x)
    assert layouts("op", x, None) != layouts("op", x)
    shifted = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    assert layouts("op", shifted) is None
    assert layouts("op", [1.0]) is None


def _frozen(array):
    array = array.copy(order="K")
    array.flags.writeable = False
    return array


def test_a_product_that_passed_is_still_refused_where_it_differs():
    a, b, out = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.empty((2, 4), np.float32)
    space = np.empty(matmul.workspace(a, b), np.uint8)
    for _ in range(2):
        matmul.forward(a, b, None, False, out, space)
        assert (out == 3).all()
        with pytest.raises(ShapeError, match="read-only"):
            matmul.forward(a, b, None, False, _frozen(out), space)
        with pytest.raises(KindError, match="float64"):
            matmul.forward(a.astype(np.float64), b, None, False, out, space)
        with pytest.raises(KindError, match="workspace"):
            matmul.forward(a, b, None, False, out, space.astype(np.float32))


def test_a_convolution_that_passed_is_still_refused_where_it_differs():
    x, w, out = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32), np.empty((1, 1, 2, 2), np.float32)
    settings = (1, 1), (0, 0), (1, 1), 1
    space = np.empty(conv2d.workspace("forward", x.shape, w.shape, *settings, x.dtype), np.uint8)
    for _ in range(2):
        conv2d.forward(x, w, None, False, *settings, out, space)
        assert (out == 9).all()
        with pytest.raises(ShapeError, match="read-only"):
            conv2d.forward(x, w, None, False, *settings, _frozen(out), space)
        with pytest.raises(KindError, match="relu"):
            conv2d.forward(x, w, None, 0, *settings, out, space)
        with pytest.raises(KindError, match="groups"):
            conv2d.forward(x, w, None, False, *settings[:3], True, out, space)
        with pytest.raises(KindError, match="kind"):
            conv2d.forward(x, w, None, False, *settings, out, space.tolist())
        if space.size:
            with pytest.raises(ShapeError, match="workspace"):
                conv2d.forward(x, w, None, False, *settings, out, space[:-1])


def _space(nbytes, like):
    return np.empty(nbytes, np.uint8)


@pytest.mark.parametrize("space", [_space, np.empty(softmax.workspace(3), np.uint8)])
def test_a_loss_that_was_checked_is_looked_at_where_it_must_be(space):
    x, target = np.ones((3, 4), np.float32), np.array([0, 3, 1])
    out, divisor, sums = np.empty((), np.float32), np.empty((), np.float32), np.empty(3, np.float32)

    def loss(labels=target, mean=True):
        softmax.cross_entropy_total(x, labels, -100, mean, out, divisor, sums, space)

    for _ in range(2):
        out.fill(0)
        loss()
        assert out == np.float32(np.log(4)) and divisor == 3
    for labels in (np.array([0, 4, 1]), np.array([0, -1, 1])):
        with pytest.raises(ShapeError, match="but there are 4 classes"):
            loss(labels)
    with pytest.raises(KindError, match="mean is int"):
        loss(mean=1)
    loss(np.repeat(target, 2)[::2])  # with gaps
    assert out == np.float32(np.log(4))
    if not callable(space):
        space = space[:-1]
        with pytest.raises(ShapeError, match="workspace has shape"):
            loss()
    for array, name in ((sums, "logsumexp"), (divisor, "divisor"), (out, "out")):
        array.flags.writeable = False
        with pytest.raises(ShapeError, match=f"{name} is read-only"):
            loss()


@pytest.mark.parametrize(("rows", "classes"), [(3, 4), (9, 2000), (3000, 2)])
def test_targets_are_looked_at_in_every_call_and_before_anything_is_written(rows, classes):
    """In calls for one thread and for several, and where losses do not stay on the stack."""
    x, target = np.zeros((rows, classes), np.float32), np.arange(rows) % classes
    g, out, divisor = (np.ones((), np.float32)[...] for _ in range(3))
    sums, dx = np.empty(rows, np.float32), np.empty_like(x)

    def total(labels, ignore_index=-100):
        softmax.cross_entropy_total(x, labels, ignore_index, True, out, divisor, sums, _space)

    def grad(labels, ignore_index=-100):
        softmax.cross_entropy_total_grad(g, divisor, x, labels, ignore_index, sums, dx)

    for _ in range(2):
        total(target)
        grad(target)
    np.testing.assert_allclose(out, np.log(classes), 1e-6)
    np.testing.assert_allclose(dx[0], (np.full(classes, 1 / classes) - np.eye(classes)[0]) / rows, 1e-5)
    before = [array.copy() for array in (out, divisor, sums, dx)]
    for wrong in (classes, -1, -(1 << 63), (1 << 63) - 1):
        labels = np.where(np.arange(rows) == rows - 1, wrong, target)
        for call in (total, grad):
            with pytest.raises(ShapeError, match=rf"target\[{rows - 1}\] = {wrong}, but there are {classes} classes"):
                call(labels)
    for array, same in zip((out, divisor, sums, dx), before, strict=True):
        np.testing.assert_array_equal(array, same)
    labels[-1] = -100
    total(labels)
    grad(labels)
    assert divisor == rows - 1 and not dx[-1].any()
    with pytest.raises(ShapeError, match="= -100, but"):
        grad(labels, -7)
    with pytest.raises(ShapeError, match="dx is read-only"):
        dx.flags.writeable = False
        grad(labels)


@pytest.mark.parametrize("shape", [(3, 4), (2, 300), (3000, 7), (0, 4), (2, 3, 4, 5)])
def test_sums_of_columns_that_were_checked_are_still_refused_where_they_differ(shape):
    """Sums of few columns, of many, of several parts, of nothing, and of images."""
    memory = np.arange(np.prod(shape), dtype=np.float32) % 7 - 3
    x = memory.reshape(shape) if len(shape) == 2 else memory.reshape(2, 4, 5, 3).transpose(0, 3, 1, 2)
    axes = (0, *range(2, len(shape)))
    dx, sums = np.empty_like(x), np.empty(shape[1], np.float32)

    def gradient(g=x, dx=dx, sums=sums, space=_space):
        bias.bias_relu_grad(g, x, dx, sums, space)

    def total(x=x, sums=sums, space=_space):
        bias.column_sums(x, sums, space)

    for given in (x, x, _frozen(x)):
        gradient(given)
        assert (dx == np.maximum(x, 0)).all() and (sums == np.maximum(x, 0).sum(axes)).all()
        total(given)
        assert (sums == x.sum(axes)).all()
    with pytest.raises(ShapeError, match="dx is read-only"):
        gradient(dx=_frozen(dx))
    for call in (gradient, total):
        with pytest.raises(ShapeError, match="read-only"):
            call(sums=_frozen(sums))
        with pytest.raises(KindError, match="float64"):
            call(sums=sums.astype(np.float64))
        with pytest.raises(ShapeError, match="shape"):
            call(np.ones((3, 9), np.float32))
        if x.size:
            with pytest.raises(ShapeError, match="workspace"):
                call(space=np.empty(bias.workspace(shape) - 1, np.uint8))
