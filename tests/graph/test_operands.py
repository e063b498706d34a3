"""A graph keeps what its ops read, for every op of the engine, also those that CuPy does."""

import gc

import numpy as np
import pytest

import minigrad
from minigrad import Tensor
from minigrad.core.tape import grad
from minigrad.graph import CaptureError, capture
from tests.device.stand_in_gpus import gpus
from tests.ops.test_ops import OPS, drawn, floating, results, tensors

# Of kernels of ours, and of CuPy in each of its ways: the other ops go the ways of these.
QUICK = {
    "add",
    "batch_norm",
    "cat",
    "conv2d",
    "cross_entropy",
    "getitem",
    "linear",
    "max_pool2d",
    "pad",
    "softmax",
    "sum",
}
ROWS = [  # but "to", whose rows name devices
    pytest.param(op, id=op.name, marks=[pytest.mark.deep] * (op.name not in QUICK)) for op in OPS if op.name != "to"
]


@pytest.fixture(scope="module")
def machine():
    with gpus(1) as found:
        yield found


@pytest.mark.parametrize("op", ROWS)
def test_a_graph_keeps_what_an_op_reads(op, machine):
    """The operands go after the capture; the stand-in refuses a launch that would use memory given back."""
    given = [drawn(op.samples[0], "cuda")]

    def work():
        args, kwargs = given[0]
        out = [x for x in results(op, args, kwargs) if isinstance(x, Tensor)]
        heads, wanted = ([x for x in some if x.requires_grad] for some in (floating(out), tensors(args, kwargs)))
        if not (heads and wanted):
            return out
        found = grad(heads, wanted, [minigrad.ones_like(x) for x in heads], allow_unused=True)
        return out + [x for x in found if x is not None]

    minigrad.manual_seed(0)
    step = capture(work, device="cuda")
    for _ in range(2):
        step()
    try:
        wanted = [x.detach().numpy().copy() for x in step()]
    except CaptureError:  # the host would have to wait, or a library of NVIDIA computes it
        assert op.name not in QUICK
        return
    given.clear()
    gc.collect()
    for one, other in zip(wanted, step(), strict=True):
        if not op.name.startswith("dropout"):  # which draws anew
            np.testing.assert_array_equal(one, other.detach().numpy())
