"""A residual that convolution and matrix product add at their end: the launchers.

The rungs on CUDA have it in test_matmul_cuda.py and test_conv2d_cuda.py.
"""

from dataclasses import replace

import numpy as np
import pytest

from minigrad_kernels import conv2d, matmul

from .cases.conv2d import rows
from .cases.matmul import row
from .kernel_runs import DEVICE, make_inputs, moved, on_host, run, same_bits, wanted
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
    space = lambda size, like: np.empty_like(like, np.uint8, shape=size)
    for device in ("cpu", DEVICE):
        a, b, out, residual = (moved(np.full((1, 1), value, "float16"), device) for value in (1, 1, 0, 2.0**-20))
        bias = moved(np.full(1, 2.0**-11, "float16"), device)
        matmul.forward(a, b, bias, False, out, space, residual)
        assert on_host(out).item() == 1 + 2.0**-10
