"""A residual that convolution and matrix product add at their end: the launchers, and refusals.

The rungs on CUDA have it in test_matmul_cuda.py and test_conv2d_cuda.py.
"""

from dataclasses import replace

import numpy as np
import pytest

from minigrad_kernels import conv2d, matmul
from minigrad_kernels.errors import KindError, ShapeError

from .cases.conv2d import rows
from .cases.matmul import row
from .kernel_runs import DEVICE, guarded, make_inputs, moved, on_host, run, same_bits, wanted
from .rungs import TYPES, exact

LAUNCHERS = {"conv2d": conv2d.forward, "matmul": matmul.forward}
CASES = [
    rows((2, 8, 5, 6), (12, 8, 3, 3), bias=True, relu=True, padding=(1, 1))[0],
    rows((2, 8, 5, 6), (8, 1, 3, 3), groups=8, relu=True)[0],
    rows((3, 5, 6, 7), (6, 5, 1, 1), bias=True, relu=True)[0],
    row(13, 17, 12, bias=True, relu=True),
    row(5, 6, 7, (3,), relu=True),
]


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_launchers_add_it_on_every_device_and_round_once(case, device):
    for kind in TYPES:
        exact(LAUNCHERS[case.family], kind, case, residual=True, device=device)
    (output,) = case.outputs
    for kind in ("float16", "bfloat16"):
        exact(LAUNCHERS[case.family], kind, replace(case, outputs=(replace(output, kind="float32"),)), True, device)


def test_a_residual_at_any_address():
    """Results of 128 bits may be written, the residual must be read one by one."""
    case = row(13, 17, 12)
    inputs, whole = make_inputs(case, np.float32, integers=True), np.arange(13 * 12 + 1, dtype=np.float32)
    residual = whole[1:].reshape(13, 12)
    forward = lambda *arguments: matmul.forward(*arguments, residual=moved(residual, DEVICE))
    same_bits(run(case, np.float32, inputs, DEVICE, forward), [wanted(case, inputs)[0] + residual])


def test_the_sum_is_rounded_once():
    """1 + 2^-11 + 2^-20: rounded after the product it would be 1, rounded at the end it is the next number above."""
    one = np.ones((1, 1), "float16")
    bias, residual = np.full(1, 2.0**-11, "float16"), np.full((1, 1), 2.0**-20, "float16")
    for device in ("cpu", DEVICE):
        out = guarded(1, np.float16, 0)[0].reshape(1, 1)
        a, b, bias_there, out, space, beside = (
            moved(x, device) for x in (one, one.copy(), bias, out, np.empty(0, np.uint8), residual)
        )
        matmul.forward(a, b, bias_there, False, out, space, beside)
        assert on_host(out)[0, 0] == 1 + 2.0**-10


@pytest.mark.parametrize("family", LAUNCHERS)
def test_what_does_not_fit_is_refused_also_after_a_call_that_was_right(family):
    """The output itself, another shape, another type, a list."""
    a, out, residual = (np.ones((4, 4) + (1, 1) * (family == "conv2d"), np.float32) for _ in range(3))
    b = a.swapaxes(0, 1)  # the layout of filters
    settings = ((1, 1), (0, 0), (1, 1), 1) if family == "conv2d" else ()
    call = lambda beside: LAUNCHERS[family](
        a, b, None, False, *settings, out, lambda size, like: np.empty(size, np.uint8), beside
    )
    for _ in range(2):
        call(residual)
        assert (out == 5).all()
    for wrong, error, message in (
        (out, ShapeError, "residual is out, wants an array of its own"),
        (residual[:3], ShapeError, "residual has shape (3, 4"),
        (residual.astype(float), KindError, "residual has type float64, wants float32"),
        ([1.0], KindError, "residual is builtins.list, wants numpy.ndarray"),
    ):
        with pytest.raises(error) as refused:
            call(wrong)
        assert str(refused.value).startswith(f"{family}: {message}")
    assert (out == 5).all()
