"""The rungs of the weight gradient of convolution: results at every edge of their tiles."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from minigrad_kernels.conv2d import cuda_weight, output_shape
from minigrad_kernels.conv2d.cuda_weight import weight_grad, weight_grad_workspace
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from .cases import KernelCase, Output
from .kernel_runs import DEVICE, make_inputs, run, same_bits, wanted, within_rounding

pytestmark = pytest.mark.deep


def row(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    """The weight gradient of one geometry, with the workspace that the CUDA kernels want."""
    out = output_shape(x, w, None, stride, padding, dilation, groups)
    return KernelCase(
        family="conv2d",
        function="weight_grad",
        shapes=(out, x),
        params=dict(stride=stride, padding=padding, dilation=dilation, groups=groups),
        outputs=(Output(w, FILTER),),
        layouts=(CHANNELS_LAST, CHANNELS_LAST),
        workspace=lambda _, params, dtype: weight_grad_workspace(x, w, *params.values(), dtype.itemsize),
        reference_params={"kernel": w[2:]},
        terms=max(1, out[0] * out[2] * out[3]),
    )


# ---- results ---------------------------------------------------------------------------------------------------------

SETTINGS = [  # stride, padding, dilation
    ((1, 1), (1, 1), (1, 1)), ((2, 2), (0, 0), (1, 1)), ((2, 1), (2, 3), (1, 2)), ((3, 2), (1, 0), (2, 1)),
    ((1, 3), (4, 4), (2, 2)), ((4, 4), (0, 1), (1, 1)),
]  # fmt: skip


def everywhere(c, o, groups=1, taps=(3, 3)):
    """All settings for some channels, on images that they leave pixels over in."""
    return [row((2, c, 9, 10), (o, c // groups, *taps), *settings, groups) for settings in SETTINGS]


ROWS = {
    "plain": [
        *everywhere(3, 5), *everywhere(6, 4, groups=2), *everywhere(5, 5, groups=5),
        *(row((1, c, 4, 5), (o, c, 2, 2)) for c, o in product((1, 2, 4, 8), (1, 3, 16, 33))),
        row((600, 1, 1, 1), (2, 1, 1, 1)), row((1, 2, 30, 40), (3, 2, 3, 1)),
    ],
    "vector": [  # tiles of 96 rows and 32 or 64 columns; 8 pixels
        *everywhere(4, 8), *everywhere(8, 16, groups=2),
        row((7, 92, 1, 1), (28, 92, 1, 1)), row((8, 96, 1, 1), (32, 96, 1, 1)), row((9, 100, 1, 1), (36, 100, 1, 1)),
        row((1, 8, 5, 6), (60, 8, 3, 4)), row((1, 32, 4, 4), (64, 32, 3, 2)), row((2, 20, 4, 3), (68, 20, 3, 3)),
        row((3, 4, 9, 9), (132, 4, 5, 5), padding=(2, 2)), row((600, 4, 1, 1), (4, 4, 1, 1)),
        row((1, 16, 24, 30), (16, 16, 3, 3), padding=(1, 1)),
    ],
    "register": [  # threads with 9 rows and 4 columns
        *everywhere(4, 8), *everywhere(3, 5), *everywhere(3, 8), *everywhere(2, 12, groups=2, taps=(2, 4)),
        *(row((2, c, 6, 7), (o, c, 3, 3), padding=(1, 1)) for c, o in product((1, 2, 3, 5, 16), (1, 4, 7, 16))),
        row((1, 33, 6, 5), (16, 33, 3, 3)), row((2, 64, 4, 4), (12, 64, 3, 3)), row((2, 4, 5, 5), (132, 4, 3, 3)),
        row((2, 1, 8, 8), (6, 1, 5, 5)), row((3, 3, 7, 7), (65, 3, 3, 3)), row((600, 1, 1, 1), (2, 1, 1, 1)),
        row((2, 2, 1, 300), (3, 2, 1, 2)), row((1, 2, 300, 1), (4, 2, 3, 1)), row((2, 3, 40, 30), (4, 3, 3, 3)),
        row((1, 4, 31, 23), (8, 4, 7, 7), (2, 2), (3, 3)), row((2, 150, 9, 9), (4, 150, 3, 3)),
    ],
    "pointwise": [
        row((2, c, 5, 7), (o, c, 1, 1), dilation=(2, 2)) for c, o in ((17, 20), (20, 17), (64, 68), (33, 33))
    ] + [row((1, 20, 30, 30), (24, 20, 1, 1)), row((600, 32, 1, 1), (32, 32, 1, 1))],
}  # fmt: skip
# Those of few filters run on the tile that is made for them.
ROWS["vector_96x32"] = [
    case
    for case in ROWS["vector"]
    if case.outputs[0].shape[0] // case.params["groups"] <= cuda_weight.TILES["vector_96x32"]
]
ROWS["vector"] = [case for case in ROWS["vector"] if case not in ROWS["vector_96x32"]]
PAIRS = [(name, case) for name, cases in ROWS.items() for case in cases]
each_row = pytest.mark.parametrize("name, case", PAIRS, ids=lambda value: str(value).removeprefix("conv2d."))
each_rung = pytest.mark.parametrize("name", ROWS)


def forced(name, case, dtype, inputs):
    """dw by one rung, which must be the one that runs."""
    return run(case, dtype, inputs, DEVICE, partial(weight_grad, rung=name))


def test_every_rung_has_rows():
    """But for those on tensor cores, which have a file of their own."""
    assert set(ROWS) == set(cuda_weight.RUNGS) - {"tensor"}


@each_row
def test_rungs_are_exact_on_small_integers(name, case):
    inputs = make_inputs(case, np.float32, integers=True)
    same_bits(forced(name, case, np.float32, inputs), wanted(case, inputs))


@pytest.mark.parametrize("case", ROWS["plain"], ids=str)
def test_float64_is_exact_on_small_integers(case):
    inputs = make_inputs(case, np.float64, integers=True)
    same_bits(forced(None, case, np.float64, inputs), wanted(case, inputs))


@each_rung
def test_rungs_round_as_they_should_and_the_same_twice(name):
    for case in (ROWS[name][0], ROWS[name][-1]):
        inputs = make_inputs(case, np.float32)
        results = forced(name, case, np.float32, inputs)
        within_rounding(case, np.float32, inputs, results)
        same_bits(results, forced(name, case, np.float32, inputs))


@each_rung
def test_nan_reaches_exactly_what_it_must(name):
    """A NaN of g also meets the zeros of the padding; one of x that no tap reads goes nowhere."""
    cases = ROWS[name][:1] + ROWS[name][2:3] if name != "pointwise" else ROWS[name][:1]
    corners = [(0, 0, 0, 0), (-1, -1, -1, -1), (-1, 0, 0, -1), (0, -1, -1, 0)]
    for case, (position, corner) in product(cases, product((0, 1), corners)):
        inputs = make_inputs(case, np.float32, integers=True)
        inputs[position][corner] = np.nan
        (got,), (want,) = forced(name, case, np.float32, inputs), wanted(case, inputs)
        np.testing.assert_array_equal(got, want, err_msg=f"{case} {position} {corner}")


def test_no_images_give_zeros():
    for case in (row((0, 3, 5, 5), (4, 3, 3, 3)), row((0, 32, 2, 2), (32, 32, 1, 1))):
        for dtype in (np.float32, np.float64):
            (dw,) = forced(None, case, dtype, make_inputs(case, dtype))
            assert not dw.any()


@pytest.mark.parametrize("c, name", [(1, "register"), (4, "register"), (1, "plain")])
def test_long_sums_lose_little(c, name):
    """Of 100,000 numbers of one sign; added one by one in float32 they would be off by up to a thousandth."""
    case = row((10, c, 100, 100), (4, c, 1, 1))
    inputs = [np.abs(array) for array in make_inputs(case, np.float32)]
    (got,), (want,) = forced(name, case, np.float32, inputs), wanted(case, inputs)
    np.testing.assert_allclose(got, want, rtol=3e-6)
