"""Where gradients are cut into buckets."""

import pytest

from minigrad.parallel.buckets import bucket_bounds, bucket_bytes

MB = 1_000_000


@pytest.mark.parametrize(
    "sizes, first, bucket, bounds",
    [
        ([], 10, 30, []),
        ([4, 3, 3], 10, 30, [(0, 3)]),  # all of it fits into the first
        ([10] * 10, 10, 30, [(0, 1), (1, 4), (4, 7), (7, 9), (9, 10)]),
        ([10] * 10, 20, 1000, [(0, 2), (2, 8), (8, 10)]),
        ([1, 100, 1, 1], 2, 5, [(0, 2), (2, 4)]),  # one larger than a bucket takes what came before along
        ([1, 1, 100], 2, 5, [(0, 2), (2, 3)]),  # and stands alone at the end
        ([10] * 4, None, 20, [(0, 2), (2, 4)]),  # a small bucket makes small ends
        ([MB // 10] * 10, None, None, [(0, 10)]),
    ],
)
def test_cuts(sizes, first, bucket, bounds):
    assert bucket_bounds(sizes, first, bucket) == bounds


def test_default_is_an_eighth_between_1_and_25_megabytes():
    assert [bucket_bytes(total * MB) for total in (0, 8, 80, 1000)] == [MB, MB, 10 * MB, 25 * MB]
    sizes = [MB // 2] * 160
    held = [sum(sizes[start:stop]) for start, stop in bucket_bounds(sizes)]
    assert held == [MB, *[10 * MB] * 7, 8 * MB, MB]
