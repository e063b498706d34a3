"""Launchers on arrays of 16 bits for which there are no kernels; what ops give is in tests/ops/test_ops.py."""

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import matmul, optimizer

from .kernel_runs import same_bits

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
each_half = pytest.mark.parametrize("half", HALVES, ids=str)
F = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
NONE = np.empty(0, np.uint8)  # a workspace for what has no use for one


@each_half
def test_sums_and_lists(half):
    """Sums may be asked for unrounded, too large ones become infinite; lists are updated in place."""
    x, single, short = F.astype(half), np.empty((3, 3), "f4"), np.empty((3, 3), half)
    for out in (single, short):
        matmul.forward(x, x.T, None, False, out, NONE)
    np.testing.assert_allclose(single, x.astype("f8") @ x.T.astype("f8"), rtol=1e-6)
    np.testing.assert_array_equal(short, single.astype(half))
    huge = np.full((1, 2), np.finfo("f4").max if half.name == "bfloat16" else 300, half)
    matmul.forward(huge, huge.T, None, False, short[:1, :1], NONE)
    assert np.isinf(short[0, 0])
    p, g = [F.astype(half), F[0].astype(half)], [np.ones_like(F, half), np.ones(4, half)]
    buffers, wanted, plan = [np.zeros_like(one) for one in p], [one.astype("f4") for one in p], optimizer.Plan()
    for step in (0.25, 0.375):  # the plan sees new copies each time
        optimizer.sgd(p, g, buffers, np.array([0.25, 0, 0.5, 0, 0, 0, 0]), plan)  # rate and momentum
        wanted = [(one - step).astype(half).astype("f4") for one in wanted]
    same_bits([one.astype("f4") for one in p], wanted)
    same_bits(buffers, [np.full(buffer.shape, 1.5, half) for buffer in buffers])
