"""Where gradients are cut into buckets."""

import numpy as np
import pytest

from minigrad import models
from minigrad.core.errors import KindError, ShapeError
from minigrad.parallel.buckets import bucket_bounds, bucket_bytes

MB = 1_000_000


@pytest.mark.parametrize(
    "sizes, first, bucket, bounds",
    [
        ([], 10, 30, []),
        ([0, 0], 10, 30, [(0, 2)]),
        ([4, 3, 3], 10, 30, [(0, 3)]),  # all of it fits into the first
        ([10] * 10, 10, 30, [(0, 1), (1, 4), (4, 7), (7, 9), (9, 10)]),
        ([10] * 10, 20, 30, [(0, 2), (2, 5), (5, 8), (8, 10)]),
        ([10] * 10, 20, 1000, [(0, 2), (2, 8), (8, 10)]),
        ([1, 100, 1, 1], 2, 5, [(0, 2), (2, 4)]),  # one larger than a bucket takes what came before along
        ([1, 1, 100], 2, 5, [(0, 2), (2, 3)]),  # and stands alone at the end
        ([100], 2, 5, [(0, 1)]),
        ([100, 100], 2, 5, [(0, 1), (1, 2)]),
        ([0, 11, 0, 11, 0], 10, 10, [(0, 2), (2, 4), (4, 5)]),
    ],
)
def test_cuts(sizes, first, bucket, bounds):
    assert bucket_bounds(sizes, first, bucket) == bounds


def test_default_is_an_eighth_between_1_and_25_megabytes():
    assert bucket_bytes(0) == bucket_bytes(8 * MB) == MB
    assert bucket_bytes(80 * MB) == 10 * MB
    assert bucket_bytes(10**9) == 25 * MB
    sizes = [MB // 2] * 160
    held = [sum(sizes[start:stop]) for start, stop in bucket_bounds(sizes)]
    assert held == [MB, *[10 * MB] * 7, 8 * MB, MB]


def test_a_small_bucket_asked_for_makes_small_ends():
    assert bucket_bounds([10] * 4, bucket=20) == [(0, 2), (2, 4)]


def test_a_tiny_model_is_one_bucket():
    for name in ("digits-cnn", "lenet", "keras-cnn"):
        sizes = [parameter.numel() * 4 for parameter in models.build(name, (1, 28, 28)).parameters()]
        assert bucket_bounds(sizes[::-1]) == [(0, len(sizes))]


def test_random_lists_are_cut_whole_and_within_limits():
    random = np.random.default_rng(0)
    for _ in range(300):
        sizes = [int(size) for size in random.integers(0, 50, random.integers(1, 30))]
        first, bucket = (int(limit) for limit in random.integers(1, 80, 2))
        bounds = bucket_bounds(sizes, first, bucket)
        assert bounds == bucket_bounds(iter(sizes), first, bucket)
        assert [index for start, stop in bounds for index in range(start, stop)] == list(range(len(sizes)))
        assert all(stop > start for start, stop in bounds)
        for number, (start, stop) in enumerate(bounds[:-1]):
            # Without its last gradient no bucket was full.
            assert sum(sizes[start : stop - 1]) < (bucket if number else first)
        start, stop = bounds[-1]
        assert sum(sizes[start:stop]) <= first or stop - start == 1


@pytest.mark.parametrize(
    "error, arguments, says",
    [
        (ShapeError, ([4, -1], 1, 1), r"sizes\[1\] is -1"),
        (KindError, ([4, 1.5], 1, 1), r"sizes\[1\] is 1.5"),
        (KindError, ([True], 1, 1), r"sizes\[0\] is True"),
        (ShapeError, ([4], 0, 1), "first is 0"),
        (ShapeError, ([4], 1, -3), "bucket is -3"),
        (ShapeError, ([4], 1, float("nan")), "bucket is nan"),
    ],
)
def test_refuses(error, arguments, says):
    with pytest.raises(error, match=says):
        bucket_bounds(*arguments)
