"""Products whose rows of B lie far apart, so that blocks of B are packed; sums and rows that are cut into pieces."""

import numpy as np
import pytest

from minigrad_kernels.conv2d.winograd_mode import winograd
from minigrad_kernels.toolchain.product import Job, in_pieces

from .cases.conv2d import pooled, rows
from .kernel_runs import each_type, make_inputs, run, same_bits, wanted

CASES = [
    *rows((5, 260, 4, 4), (260, 260, 3, 3), padding=(1, 1), bias=True, relu=True),
    *rows((3, 130, 7, 6), (270, 130, 3, 3), stride=(2, 1), padding=(0, 1)),
    *rows((4, 520, 5, 5), (300, 260, 1, 1), groups=2),
    pooled((5, 20, 9, 9), (270, 20, 3, 3), (2, 2), (2, 2)),
]


@each_type
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_on_small_integers(case, dtype):
    inputs = make_inputs(case, dtype, integers=True)
    with winograd(False):
        same_bits(run(case, dtype, inputs), wanted(case, inputs))


@pytest.mark.parametrize("taps, length, depth", [(1, 10, 4), (3, 10, 4), (5, 2, 7), (4, 6, 24), (2, 0, 4), (0, 5, 4)])
def test_pieces_of_a_job_add_what_the_job_does(taps, length, depth):
    job = Job(a_offset=7, a_step=3, b_offset=9, b_step=50, tap=2, tap_end=2 + taps, length=length)
    pieces, terms = in_pieces(job, depth), []
    for number, piece in enumerate(pieces):
        steps = range(piece.length)
        assert (piece.tap_end - piece.tap) * piece.length <= depth
        assert piece.accumulate == (number > 0) and piece.last == (number == len(pieces) - 1)
        terms += [
            (tap, piece.a_offset + k * piece.a_step, piece.b_offset + k * piece.b_step)
            for tap in range(piece.tap, piece.tap_end)
            for k in steps
        ]
    whole = [(tap, 7 + 3 * k, 9 + 50 * k) for tap in range(2, 2 + taps) for k in range(length)]
    np.testing.assert_array_equal(terms, whole)
