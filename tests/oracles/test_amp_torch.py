"""Mixed precision beside PyTorch's: the lists of its CUDA autocast, the scaler step by step."""

import re
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, amp, ops, optim
from minigrad.ops.autocast import table
from tests.oracles.beside_torch import close, torch

OF_OTHERS = {"conv1d", "conv_transpose1d", "conv_transpose2d"}  # are made of ops that are listed
# Ours that its lists do not name: compositions there, names of our own, or in C++ alone. PyTorch refuses
# binary_cross_entropy in float16 on a GPU and computes it in float32 on the CPU, as we do everywhere.
UNLISTED = {
    "lower": {"conv2d_input_grad", "conv2d_weight_grad", "scaled_dot_product_attention"},
    "float32": {
        *("binary_cross_entropy", "cross_entropy", "huber_loss", "interpolate", "logsigmoid", "normalize"),
        *("instance_norm", "pairwise_distance", "square", "std", "var"),
    },
}


def listed():
    """{policy: names} of PyTorch's own tests of autocast on CUDA."""
    text = (Path(torch.__file__).parent / "testing/_internal/autocast_test_lists.py").read_text()
    text = text.partition("class AutocastTestLists")[2].partition("class ")[0]
    found, kinds = {}, {"fp16": "lower", "fp32": "float32"}
    for kind, body in re.findall(r"self\.(?!\w*builtin)\w+_(fp16|fp32) = \[(.*?)\n        \]", text, re.DOTALL):
        found.setdefault(kinds[kind], set()).update(re.findall(r'\n            \("(\w+)"', body))
    return found


def test_the_table_is_that_of_cuda():
    theirs = listed()
    assert all(len(names) > 8 for names in theirs.values()), "the lists are written in another way now"
    for policy, names in table().items():
        assert {*names} - theirs[policy] == UNLISTED[policy]
        assert theirs[policy] & {*ops.__all__} <= {*names, *OF_OTHERS}


@pytest.mark.parametrize("kind, options", [("SGD", (8.0, 2.0, 0.5, 3)), ("Adam", (5.0, 2.7, 0.3, 2))])
def test_the_scaler_step_by_step(kind, options):
    rng = np.random.default_rng(3)
    array = rng.standard_normal(6).astype(np.float32)
    w, t = Tensor(array.copy(), requires_grad=True), torch.tensor(array.copy(), requires_grad=True)
    first, second = getattr(optim, kind)([w], lr=0.1), getattr(torch.optim, kind)([t], lr=0.1)
    ours, theirs = amp.GradScaler("cpu", *options), torch.amp.GradScaler("cpu", *options)
    for step in range(24):
        x = rng.standard_normal(6).astype(np.float32)
        if step in (2, 9, 10, 17):
            x[1] = (np.inf, -np.inf, np.nan)[step % 3]
        for scaler, optimizer, leaf, given in ((ours, first, w, Tensor(x)), (theirs, second, t, torch.tensor(x))):
            optimizer.zero_grad()
            scaler.scale((leaf * given).sum()).backward()
            if step % 2:
                scaler.unscale_(optimizer)
        np.testing.assert_array_equal(w.grad.numpy(), t.grad.numpy())
        for scaler, optimizer in ((ours, first), (theirs, second)):
            scaler.step(optimizer), scaler.update()
        assert ours.state_dict() == theirs.state_dict()
        close(w, t, 2e-6)
    theirs.load_state_dict(ours.state_dict())
