"""The rows of tests/kernels/cases that CUDA kernels exist for: the interpreter runs the code that the compiler made."""

import re

import numpy as np
import pytest

from minigrad_kernels import bias, interpreter
from minigrad_kernels.bias import cuda as bias_cuda
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.softmax import cuda_teams
from minigrad_kernels.toolchain import implementation

from .kernel_runs import (
    CASES,
    DEVICE,
    each_type,
    exists,
    make_inputs,
    make_output,
    moved,
    part,
    run,
    same_bits,
    spoil,
    wanted,
    within_rounding,
)

ROWS = [case for case in CASES if exists(case, ".cuda")]
FIRST = {(case.family, case.function): case for case in reversed(ROWS)}.values()  # of each kernel


def rows_of(cases):
    """A parameter a row: the first of each kernel, and with --deep the others."""
    return [pytest.param(case, id=str(case), marks=[pytest.mark.deep] * (case not in FIRST)) for case in cases]


each_row = pytest.mark.parametrize("case", rows_of(ROWS))


@each_type
@pytest.mark.parametrize("case", rows_of(case for case in ROWS if case.exact))
def test_exact_on_small_integers(case, dtype):
    inputs = make_inputs(case, dtype, integers=True)
    same_bits(run(case, dtype, inputs, DEVICE), wanted(case, inputs))


@each_type
@each_row
def test_within_rounding_and_the_same_bits_twice(case, dtype):
    inputs = make_inputs(case, dtype)
    results = run(case, dtype, inputs, DEVICE)
    within_rounding(case, dtype, inputs, results)
    same_bits(results, run(case, dtype, inputs, DEVICE))


@pytest.mark.deep
@pytest.mark.parametrize("case, position", [(case, i) for case in ROWS for i in case.nan], ids=str)
def test_nan_reaches_what_it_must(case, position):
    inputs = make_inputs(case, np.float32)
    spoil(inputs[position])
    for got, want in zip(run(case, np.float32, inputs, DEVICE), wanted(case, inputs), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


LADDERS = bias_cuda, cuda_teams  # of columns, of rows


@pytest.mark.parametrize("case", rows_of(case for case in ROWS if case.family in ("bias", "norm", "softmax")))
def test_plain_rungs_of_float32(case, monkeypatch):
    """The rows that otherwise take a higher one."""
    for module in LADDERS:
        monkeypatch.setattr(module, "choose", lambda op, rung, misfits: "plain")
    inputs = make_inputs(case, np.float32)
    within_rounding(case, np.float32, inputs, run(case, np.float32, inputs, DEVICE))


def ones(*shape, dtype=np.float32):
    return interpreter.array(np.ones(shape, dtype))


REFUSED = {
    "no such rung": (
        lambda: bias_cuda.column_sums(ones(4, 4), ones(4), ones(bias.workspace((4, 4)), dtype="u1"), "tiled"),
        "column_sums: rung is 'tiled', wants one of plain, vector",
    ),
    "vector of float64": (
        lambda: bias_cuda.column_sums(
            ones(4, 4, dtype="f8"), ones(4, dtype="f8"), ones(bias.workspace((4, 4)), dtype="u1"), "vector"
        ),
        "column_sums: the rung vector wants float32, sizes that are multiples of 4",
    ),
    "vector of odd sizes": (
        lambda: bias_cuda.column_sums(ones(3, 5), ones(5), ones(bias.workspace((3, 5)), dtype="u1"), "vector"),
        "column_sums: the rung vector wants float32, sizes that are multiples of 4",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_rungs_that_do_not_fit(name):
    call, words = REFUSED[name]
    with pytest.raises(ShapeError, match="^" + re.escape(words)):
        call()


def test_functions_without_a_cuda_kernel_say_so():
    words = "softmax.sparsemax: got minigrad_kernels.interpreter.array.Array, wants numpy.ndarray"
    with pytest.raises(KindError, match="^" + re.escape(words)):
        implementation("minigrad_kernels.softmax", "sparsemax", ones(1))


def test_arrays_of_several_kinds_are_refused():
    """Whatever the first one is, on which the choice of the kernels rests."""
    for case in {(case.family, case.function): case for case in CASES}.values():
        inputs = make_inputs(case, np.float32)
        outputs = [moved(make_output(output, np.float32)[0], "interpreter") for output in case.outputs]
        space = [np.empty(case.workspace(inputs, case.params, np.dtype("f4")), np.uint8)] if case.workspace else []
        with pytest.raises(KindError, match="Array, wants numpy.ndarray"):
            part(case)(*case.arguments(inputs), *outputs, *case.absent, *space)
