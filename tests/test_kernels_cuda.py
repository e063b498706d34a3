"""The rows of tests/cases that CUDA kernels exist for: the interpreter runs the code that the compiler made."""

import re

import numpy as np
import pytest

from minigrad_kernels import bias, interpreter, softmax
from minigrad_kernels.bias import cuda as bias_cuda
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.softmax import cuda as softmax_cuda

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
each_row = pytest.mark.parametrize("case", ROWS, ids=str)
# One row for each function that there is no CUDA kernel for.
ABSENT = {f"{case.family}.{case.function}": case for case in CASES if not exists(case, ".cuda")}


@each_type
@pytest.mark.parametrize("case", [case for case in ROWS if case.exact], ids=str)
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


@pytest.mark.parametrize("case, position", [(case, i) for case in ROWS for i in case.nan], ids=str)
def test_nan_reaches_what_it_must(case, position):
    inputs = make_inputs(case, np.float32)
    spoil(inputs[position])
    for got, want in zip(run(case, np.float32, inputs, DEVICE), wanted(case, inputs), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


LADDERS = {"bias": bias_cuda, "softmax": softmax_cuda}


@pytest.mark.parametrize("case", [case for case in ROWS if case.family in LADDERS], ids=str)
def test_plain_rungs_of_float32(case, monkeypatch):
    """The rows that otherwise take a higher one."""
    monkeypatch.setattr(LADDERS[case.family], "choose", lambda op, rung, misfits: "plain")
    inputs = make_inputs(case, np.float32)
    within_rounding(case, np.float32, inputs, run(case, np.float32, inputs, DEVICE))


@pytest.mark.parametrize("rung, classes", [("plain", 5), ("warp", 5), ("warp", 40), ("warp", 200), ("warp", 1100)])
def test_targets_out_of_range_give_nan_rows(rung, classes):
    """As they do on a GPU, where nobody looks at them before: beside them, and where they are ignored, all is well."""
    x = interpreter.array(np.ones((6, classes), np.float32))
    target = interpreter.array(np.array([0, classes, -1, -100, 2**40, classes - 1]))
    losses, dx = interpreter.empty(6), interpreter.empty((6, classes))
    softmax_cuda.cross_entropy_with_grad(x, target, -100, 1, losses, dx, rung)
    wrong = [False, True, True, False, True, False]
    np.testing.assert_array_equal(np.isnan(losses), wrong)
    np.testing.assert_array_equal(np.isnan(dx), np.repeat(np.array(wrong)[:, None], classes, 1))
    assert losses[3] == 0 and not dx[3].any()


@pytest.mark.parametrize("rung", ["plain", "warp"])
@pytest.mark.parametrize("classes", [3, 33, 1030])
def test_rows_without_a_finite_greatest_element_are_nan(rung, classes):
    """Of NaN, of +inf, of -inf alone; and -inf beside numbers is a probability of 0."""
    x = np.zeros((5, classes), np.float32)
    x[0, -1], x[1, 0], x[2], x[3, 1] = np.nan, np.inf, -np.inf, -np.inf
    arrays = interpreter.array(x), interpreter.array(np.array([0, 1, 0, 1, 0]))
    losses, dx = interpreter.empty(5), interpreter.empty((5, classes))
    softmax_cuda.cross_entropy_with_grad(*arrays, -100, 1, losses, dx, rung)
    wanted = np.empty(5, np.float32), np.empty((5, classes), np.float32)
    with np.errstate(invalid="ignore"):
        softmax.cross_entropy_with_grad(x, np.array([0, 1, 0, 1, 0]), -100, 1, *wanted)
    for got, want in zip((losses, dx), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert np.isnan(dx[:3]).all() and losses[3] == np.inf


def ones(*shape, dtype=np.float32):
    return interpreter.array(np.ones(shape, dtype))


REFUSED = {
    "no such rung": (
        lambda: bias_cuda.bias_relu(ones(4, 4), ones(4), ones(4, 4), "tiled"),
        "bias_relu: rung is 'tiled', wants one of plain, vector",
    ),
    "vector of float64": (
        lambda: bias_cuda.bias_relu(ones(4, 4, dtype="f8"), ones(4, dtype="f8"), ones(4, 4, dtype="f8"), "vector"),
        "bias_relu: the rung vector wants float32, sizes that are multiples of 4",
    ),
    "vector of odd sizes": (
        lambda: bias_cuda.column_sums(ones(3, 5), ones(5), ones(bias.workspace((3, 5)), dtype="u1"), "vector"),
        "column_sums: the rung vector wants float32, sizes that are multiples of 4",
    ),
    "warp of float64": (
        lambda: softmax_cuda.cross_entropy_with_grad(
            ones(2, 2, dtype="f8"), ones(2, dtype="i8"), 0, 1, ones(2), ones(2, 2), "warp"
        ),
        "cross_entropy_with_grad: the rung warp wants float32",
    ),
}


def test_more_classes_than_places_are_refused():
    """A row of 2**31 - 32 classes; the kernels look 32 elements ahead in 32 bits."""
    far = np.broadcast_to(ones(1), (1, (1 << 31) - 32)).view(interpreter.Array)
    with pytest.raises(ShapeError, match="cross_entropy_with_grad: x has shape .*, wants less than 2147483616"):
        softmax_cuda.cross_entropy_with_grad(far, ones(1, dtype="i8"), -100, 1, ones(1), far)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_rungs_that_do_not_fit(name):
    call, words = REFUSED[name]
    with pytest.raises(ShapeError, match="^" + re.escape(words)):
        call()


@pytest.mark.parametrize("name", ABSENT)
def test_functions_without_a_cuda_kernel_say_so(name):
    case = ABSENT[name]
    words = f"{name}: got minigrad_kernels.interpreter.array.Array, wants numpy.ndarray"
    with pytest.raises(KindError, match="^" + re.escape(words)):
        run(case, np.float32, make_inputs(case, np.float32), "interpreter")


def test_arrays_of_several_kinds_are_refused():
    """Whatever the first one is, on which the choice of the kernels rests."""
    for case in {(case.family, case.function): case for case in CASES}.values():
        inputs = make_inputs(case, np.float32)
        outputs = [moved(make_output(output, np.float32)[0], "interpreter") for output in case.outputs]
        space = [np.empty(case.workspace(inputs, case.params, np.dtype("f4")), np.uint8)] if case.workspace else []
        with pytest.raises(KindError, match="wants arrays of one kind, on one device"):
            part(case)(*inputs, *case.params.values(), *outputs, *space)
