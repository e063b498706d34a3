"""TF32: rounding to the nearest number of 10 bits, and products whose operands are rounded so."""

import dataclasses
from itertools import product

import numpy as np
import pytest

import minigrad
from minigrad import modes
from minigrad_kernels import matmul
from minigrad_kernels.errors import KindError
from minigrad_kernels.toolchain.tf32_mode import mode, round_to_tf32

from .cases.matmul import LAYOUTS, repeated, row
from .kernel_runs import laid_out, make_inputs, run, same_bits, within_rounding


def rounded(values):
    x = np.asarray(values, np.float32)
    out = np.full_like(x, 77)
    round_to_tf32(x, out)
    return out


def test_ties_round_away_from_zero():
    unit = 2.0**-10  # between neighbours of TF32 from 1 to 2
    given = [1 + unit / 2, -1 - unit / 2, 1 + 0.49 * unit, 1 + 1.49 * unit, 2 - unit / 4, 0.0, -0.0, 2.0**-149]
    want = np.float32([1 + unit, -1 - unit, 1, 1 + unit, 2, 0, -0.0, 0])
    same_bits([rounded(given).view("u4")], [want.view("u4")])


def test_what_is_not_finite_stays_and_what_is_too_large_becomes_infinite():
    nan = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(rounded(nan)).all()
    same_bits([rounded([np.inf, -np.inf, np.finfo(np.float32).max])], [np.float32([np.inf, -np.inf, np.inf])])


def test_the_error_is_at_most_half_a_unit_and_rounding_twice_changes_nothing():
    x = np.random.default_rng(0).standard_normal(10000).astype(np.float32)
    once = rounded(x)
    assert np.abs(once - x).max() > 0 and (np.abs(once - x) <= 2.0**-11 * np.abs(x)).all()
    same_bits([once], [rounded(once)])
    round_to_tf32(x, x)
    same_bits([x], [once])


CASES = [
    *(row(13, 17, 33, bias=True, layouts=layouts) for layouts in product(LAYOUTS, LAYOUTS)),
    *(row(5, 6, 7, (3,), layouts=layouts) for layouts in product([None, repeated], repeat=2)),
    row(600, 40, 50, bias=True, relu=True),
    row(1, 29, 1),
    row(3, 0, 4, bias=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_are_those_of_rounded_operands(case):
    inputs = make_inputs(case, np.float32)
    layouts = case.layouts + (None,) * (3 - len(case.layouts))
    with minigrad.tf32():
        results = run(case, np.float32, inputs)
    near = [None if x is None else laid_out(rounded(x), layout) for x, layout in zip(inputs, layouts, strict=True)]
    near[2] = inputs[2]
    within_rounding(case, np.float32, near, results)
    if case.shapes[0][-1]:
        (exact,) = run(case, np.float32, inputs)
        assert (exact != results[0]).any()


def test_float64_is_left_alone():
    case = CASES[0]
    inputs = make_inputs(case, np.float64)
    with minigrad.tf32():
        same_bits(run(case, np.float64, inputs), run(case, np.float64, inputs))
        results = run(case, np.float64, inputs)
    within_rounding(case, np.float64, inputs, results)


def test_a_call_in_the_mode_does_not_change_one_outside():
    case = dataclasses.replace(CASES[0], layouts=())
    inputs = make_inputs(case, np.float32)
    before = run(case, np.float32, inputs)
    with minigrad.tf32():
        assert mode() and matmul.workspace(*inputs[:2]) > 0
        assert not np.array_equal(run(case, np.float32, inputs), before)
        with modes.tf32(False):
            same_bits(run(case, np.float32, inputs), before)
    assert not mode()
    same_bits(run(case, np.float32, inputs), before)


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_refuses_other_modes(wrong):
    with pytest.raises(KindError, match="^tf32: mode is .*, wants True or False"), minigrad.tf32(wrong):
        pass


def test_a_linear_layer_trains_in_it():
    rng = np.random.default_rng(0)
    x, w = (minigrad.tensor(rng.standard_normal(shape).astype("f4"), requires_grad=True) for shape in ((8, 5), (3, 5)))
    with minigrad.tf32():
        minigrad.linear(x, w).sum().backward()
    ones = np.ones((8, 3), np.float32)
    np.testing.assert_allclose(w.grad.data, ones.T @ rounded(x.data), rtol=1e-5, atol=1e-5)
