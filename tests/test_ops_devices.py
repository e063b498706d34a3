"""Every op of the engine on other devices beside the CPU: values, types, gradients, and that nothing leaves the device.

The devices are the interpreter, which runs the compiled CUDA kernels, and the second GPU of the stand-in for CuPy while
the first is the current one; with MINIGRAD_TEST_DEVICE=cuda it is a GPU.
"""

import contextlib

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.core.tape import grad

from .kernel_runs import DEVICE
from .stand_in_gpus import gpus
from .test_ops import OPS, floating, results, tensors

DEVICES = ["cuda"] if DEVICE == "cuda" else ["interpreter", "cuda:1"]
ROWS = [  # the first of each op, and with --deep the others
    pytest.param(op, sample, id=f"{op.name}{sample}", marks=[pytest.mark.deep] * (sample is not op.samples[0]))
    for op in OPS
    for sample in op.samples
]
LOOSE = 2e-5  # float32 beside float32; sums are taken in another order


@pytest.fixture(params=DEVICES, scope="module")
def place(request):
    with gpus() if request.param == "cuda:1" else contextlib.nullcontext():
        yield request.param


def drawn(sample, device):
    """(args, kwargs) with Tensors of float32 on a device."""

    def wrap(array, wants_gradient):
        return Tensor(array).to(device).requires_grad_(wants_gradient)

    return sample.draw(wrap, np.float32)


def outcome(op, sample, device):
    """(results, gradients of those that need them), all on the host, after a look that they lay on the device."""
    args, kwargs = drawn(sample, device)
    out = [x for x in results(op, args, kwargs) if isinstance(x, Tensor)]
    sources = tensors(args, kwargs)
    homes = {x.device for x in sources} or {"cpu"}
    if op.name != "to":  # whose rows may name a device
        assert {x.device for x in out} <= homes
    wanted = [x for x in sources if x.requires_grad]
    heads = [x for x in floating(out) if x.requires_grad]
    found = []
    if wanted and heads:
        weights = [np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype) for x in heads]
        weights = [Tensor(weight).to(x.device) for weight, x in zip(weights, heads, strict=True)]
        found = [x for x in grad(heads, wanted, weights, allow_unused=True) if x is not None]
        assert {x.device for x in found} <= homes
    return [x.detach().numpy() for x in (*out, *found)]


@pytest.mark.parametrize("op, sample", ROWS)
def test_as_on_the_cpu(op, sample, place):
    here, there = outcome(op, sample, "cpu"), outcome(op, sample, place)
    assert len(here) == len(there)
    for one, other in zip(here, there, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if one.dtype.kind == "f":
            largest = np.abs(one[np.isfinite(one)]).max(initial=1)
            np.testing.assert_allclose(other, one, rtol=LOOSE, atol=LOOSE * largest)
        else:
            np.testing.assert_array_equal(other, one)
