"""A residual that convolution and matrix product add at their end: every rung on CUDA, the CPU, refusals."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from minigrad_kernels import conv2d, matmul
from minigrad_kernels.conv2d import cuda as conv2d_cuda
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.matmul import cuda as matmul_cuda
from minigrad_kernels.toolchain.modes import tf32

from . import test_conv2d_cores, test_conv2d_cuda, test_matmul_cuda, test_matmul_tensor
from .cases.conv2d import rows
from .cases.matmul import row
from .kernel_runs import DEVICE, guarded, laid_out, make_inputs, moved, run, same_bits, wanted

EVERY = 3  # of the rows of a rung


def some(found):
    """(rung, type, row) of the forward direction: the first, and each third of the others, of each rung and type."""
    kept, seen = [], {}
    for rung, kind, case in found:
        if case.function == "forward" and min(case.outputs[0].shape) and case.outputs[0].kind == "float":
            count = seen[rung, kind] = seen.get((rung, kind), -1) + 1
            if count % EVERY == 0:
                kept.append((rung, kind, case))
    return kept


CASES = [
    *some((rung, "float32", case) for rung, case in test_conv2d_cuda.ROWS),
    *some(test_conv2d_cores.ROWS),
    *some((rung, "float32", case) for rung, case in test_matmul_cuda.ROWS),
    *some((rung, kind, case) for kind, rung, case in test_matmul_tensor.ROWS),
]
TYPES = test_matmul_tensor.TYPES | {"float32": np.dtype(np.float32), "float64": np.dtype(np.float64)}
MODULES = {"conv2d": conv2d_cuda, "matmul": matmul_cuda}


def residual_of(case, dtype, seed=5):
    """Small integers, with a NaN that is to pass ReLU."""
    (output,) = case.outputs
    values = np.random.default_rng(seed).integers(-40, 41, output.shape).astype(dtype)
    values.reshape(-1)[values.size // 2] = np.nan
    return laid_out(values, output.layout)


def results(case, dtype, inputs, residual, function, device=DEVICE):
    """Of the function, and what they should be."""
    got = run(case, dtype, inputs, device, partial(function, residual=moved(residual, device)))
    (want,) = wanted(dataclasses.replace(case, params={**case.params, "relu": False}), inputs)
    total = want + residual.astype(np.float64)
    want = np.where(total <= 0, 0.0, total) if case.params["relu"] else total
    return [x.astype(np.float64) for x in got], [want.astype(dtype).astype(np.float64)]


def test_every_rung_is_here_with_relu_and_without():
    assert {rung for rung, kind, case in CASES if case.family == "conv2d"} == set(conv2d_cuda.RUNGS)
    asked = {(kind, rung) for rung, kind, case in CASES if case.family == "matmul" and kind != "float32"}
    assert asked == {(kind, rung) for kind, rung, _ in test_matmul_tensor.ROWS}
    assert {rung for rung, kind, _ in CASES if kind == "float32"} >= set(matmul_cuda.RUNGS)
    assert {case.params["relu"] for *_, case in CASES} == {False, True}


@pytest.mark.parametrize("rung, kind, case", CASES, ids=str)
def test_rungs_are_exact_on_small_integers(rung, kind, case):
    dtype, function = TYPES[kind], partial(MODULES[case.family].forward, rung=rung)
    inputs = make_inputs(case, dtype, integers=True)
    with tf32(kind == "tf32"):
        same_bits(*results(case, dtype, inputs, residual_of(case, dtype), function))


IMAGES = rows((2, 8, 5, 6), (12, 8, 3, 3), bias=True, relu=True, padding=(1, 1))[0]
DEPTH = rows((2, 8, 5, 6), (8, 1, 3, 3), groups=8, relu=True)[0]
SHORT = rows((3, 5, 6, 7), (6, 5, 1, 1), bias=True, relu=True)[0]
PRODUCT = row(13, 17, 12, bias=True, relu=True)
BATCH = row(5, 6, 7, (3,), relu=True)
each_kind = pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "tf32"])


@each_kind
@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("case", [IMAGES, DEPTH, SHORT, PRODUCT, BATCH], ids=str)
def test_launchers_add_it_on_every_device_and_round_once(case, device, kind):
    dtype, launcher = TYPES[kind], {"conv2d": conv2d, "matmul": matmul}[case.family].forward
    inputs = make_inputs(case, dtype, integers=True)
    with tf32(kind == "tf32"):
        same_bits(*results(case, dtype, inputs, residual_of(case, dtype), launcher, device))


def test_a_residual_at_any_address():
    """Results of 128 bits may be written, the residual must be read one by one."""
    inputs, dtype = make_inputs(PRODUCT, np.float32, integers=True), np.float32
    whole = np.zeros(13 * 12 + 1, dtype)
    residual = whole[1:].reshape(13, 12)
    residual[...] = residual_of(PRODUCT, dtype)
    assert moved(residual, DEVICE) is not residual
    same_bits(*results(PRODUCT, dtype, inputs, residual, matmul.forward))


def test_the_sum_is_rounded_once():
    """1 + 2^-11 + 2^-20: rounded after the product it would be 1, rounded at the end it is the next number above."""
    a, b = np.full((1, 1), 1 + 2.0**-11, "float16") * 0 + np.float16(1), np.ones((1, 1), "float16")
    bias, residual = np.full(1, 2.0**-11, "float16"), np.full((1, 1), 2.0**-20, "float16")
    for device in ("cpu", DEVICE):
        out, _ = guarded(1, np.float16, 0)
        there = [moved(x, device) for x in (a, b, bias, out.reshape(1, 1), np.empty(0, np.uint8), residual)]
        matmul.forward(*there[:3], False, *there[3:])
        assert np.asarray(there[3].get() if hasattr(there[3], "get") else there[3])[0, 0] == 1 + 2.0**-10


def convolved(residual):
    image, out = (laid_out(np.ones((1, 2, 3, 3), "f"), CHANNELS_LAST) for _ in range(2))
    filters = np.ones((1, 1, 2, 2), "f").transpose(3, 2, 0, 1)
    space = lambda size, like: np.empty(size, np.uint8)
    same = isinstance(residual, str)
    conv2d.forward(image, filters, None, False, (1, 1), (0, 0), (1, 1), 1, out, space, out if same else residual)


@pytest.mark.parametrize("residual, error, message", [
    (np.ones((1, 2, 3, 2), "f"), ShapeError, "conv2d: residual has shape (1, 2, 3, 2), wants (1, 2, 3, 3)"),
    (np.ones((1, 2, 3, 3), "d"), KindError, "conv2d: residual has type float64, wants float32"),
    (np.ones((1, 2, 3, 3), "f"), ShapeError, "conv2d: residual has strides (72, 36, 12, 4)"),
    ([1.0], KindError, "conv2d: residual is builtins.list, wants numpy.ndarray"),
    ("out", ShapeError, "conv2d: residual is out, wants an array of its own"),
], ids=str)  # fmt: skip
def test_convolution_refuses(residual, error, message):
    with pytest.raises(error) as refused:
        convolved(residual)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("case", [IMAGES, PRODUCT], ids=str)
def test_results_of_float32_beside_16_bits_are_not_rounded(case, device, half):
    (output,), launcher = case.outputs, {"conv2d": conv2d, "matmul": matmul}[case.family].forward
    case = dataclasses.replace(case, outputs=(dataclasses.replace(output, kind="float32"),))
    inputs, residual = make_inputs(case, TYPES[half], integers=True), residual_of(case, TYPES[half])
    got = run(case, TYPES[half], inputs, device, partial(launcher, residual=moved(residual, device)))
    (want,) = wanted(dataclasses.replace(case, params={**case.params, "relu": False}), inputs)
    total = want + residual.astype(np.float64)
    same_bits(got, [np.where(total <= 0, 0, total).astype(np.float32)])


@pytest.mark.parametrize("residual, error, message", [
    (np.ones((2, 3), "f"), ShapeError, "matmul: residual has shape (2, 3), wants (2, 2)"),
    (np.ones((2, 2), "d"), KindError, "matmul: residual has type float64, wants float32"),
    (np.ones((2, 2), "f", "F"), ShapeError, "matmul: residual has strides (4, 8)"),
    ([1.0], KindError, "matmul: residual is builtins.list, wants numpy.ndarray"),
], ids=str)  # fmt: skip
def test_product_refuses(residual, error, message):
    a = np.ones((2, 2), "f")
    with pytest.raises(error) as refused:
        matmul.forward(a, a, None, False, np.ones((2, 2), "f"), np.empty(0, np.uint8), residual)
    assert str(refused.value).startswith(message)
    out = np.ones((2, 2), "f")
    with pytest.raises(ShapeError, match="wants an array of its own"):
        matmul.forward(a, a, None, False, out, np.empty(0, np.uint8), out)


@pytest.mark.parametrize("family", ["conv2d", "matmul"])
def test_the_output_is_refused_as_a_residual_after_a_call_that_was_right(family):
    def memory(nbytes, like):
        return np.empty(nbytes, np.uint8)

    a, out, residual = (np.ones((4, 4), np.float32) for _ in range(3))
    if family == "conv2d":
        a, out, residual = (array.reshape(4, 4, 1, 1) for array in (a, out, residual))
    b = a.swapaxes(0, 1)  # the layout of filters
    settings = ((1, 1), (0, 0), (1, 1), 1) if family == "conv2d" else ()
    forward = {"conv2d": conv2d, "matmul": matmul}[family].forward
    for _ in range(2):
        forward(a, b, None, False, *settings, out, memory, residual)
        assert (out == 5).all()
    with pytest.raises(ShapeError, match="wants an array of its own"):
        forward(a, b, None, False, *settings, out, memory, out)
    assert (out == 5).all()
