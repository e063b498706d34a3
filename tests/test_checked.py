"""What checks gave is found again for the same settings, and for nothing that only equals them."""

import pytest

from minigrad import Tensor, ops
from minigrad.create import zeros
from minigrad_kernels.checked import Checked
from minigrad_kernels.errors import KindError


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
