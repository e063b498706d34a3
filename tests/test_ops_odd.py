"""Odd values in the place of every argument of every op: taken, or refused in words that begin with the op's name."""

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.core.errors import MinigradError
from tests.op_cases import all_ops
from tests.test_ops import results, wrap

ODD = [
    *(
        None,
        True,
        "x",
        1.5,
        -1,
        0,
        10**30,
        2**62,
        -(2**63),
        float("nan"),
        1j,
        b"x",
        (),
        [],
        [[1], [1, 2]],
        {1},
        {},
        ...,
    ),
    *((0, 0), (-1, -1), ("a",), (None,), (1.0,), (-(2**70),), int, len, slice(None), object(), range(2)),
    *(np.ones(2), np.array([None, 1]), np.array(["a"]), np.int64(1), np.float64(0.5), np.bool_(True), np.array(1)),
    *(Tensor(np.ones(shape)) for shape in ((), (0,), (0, 3), (1,) * 5)),
    *(Tensor(np.ones((2, 3), dtype)) for dtype in ("float16", "int64", "uint8", "bool")),
    *([Tensor(np.ones(2))], [Tensor(np.ones(2)), 3]),
]
# Ops that name themselves inside others, and what is asked of all ops in one place.
OWN = {"norm", "pairwise_distance", "where", "dtype", "expand", "Tensor"}


def calls(op, samples):
    """Each argument of a sample, once for each op, replaced by each odd value."""
    seen = set()
    for sample in samples:
        for place in (*range(len(sample.args)), *sample.kwargs):
            if place in seen:
                continue
            seen.add(place)
            for odd in ODD:
                args, kwargs = sample.draw(wrap)
                (args if isinstance(place, int) else kwargs)[place] = odd
                yield args, kwargs


@pytest.mark.filterwarnings("ignore:.*they broadcast to:UserWarning")  # the regression losses say so
@pytest.mark.parametrize("op", all_ops(), ids=str)
def test_odd_arguments_are_taken_or_refused_in_words(op):
    for args, kwargs in calls(op, op.samples[:2]):
        try:
            results(op, args, kwargs)
        except MinigradError as error:
            name = str(error).partition(":")[0].partition(" ")[0]
            assert name == op.name or name in OWN or name.startswith("conv"), error
