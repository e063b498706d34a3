"""Mixed precision beside PyTorch's: the lists of its CUDA autocast, values in 16 bits, the scaler step by step."""

import re
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, amp, nn, ops, optim
from minigrad.ops.autocast import table

torch = pytest.importorskip("torch")

OF_OTHERS = {"conv1d", "conv_transpose1d", "conv_transpose2d"}  # are made of ops that are listed
# Ours that its lists do not name: compositions there, names of our own, or in C++ alone. PyTorch refuses
# binary_cross_entropy in float16 on a GPU and computes it in float32 on the CPU, as we do everywhere.
UNLISTED = {
    "lower": {"conv2d_input_grad", "conv2d_weight_grad", "scaled_dot_product_attention"},
    "float32": {
        *("binary_cross_entropy", "cross_entropy", "huber_loss", "interpolate", "logsigmoid", "normalize"),
        *("pairwise_distance", "square"),
    },
    "widest": {"cat", "stack"},
}


def listed():
    """{policy: names} of PyTorch's own tests of autocast on CUDA."""
    text = (Path(torch.__file__).parent / "testing/_internal/autocast_test_lists.py").read_text()
    text = text.partition("class AutocastTestLists")[2].partition("class ")[0]
    found = {"lower": set(), "float32": set(), "widest": set()}
    kinds = {"fp16": "lower", "fp32": "float32", "promote": "widest"}
    for name, body in re.findall(r"self\.(\w+) = \[(.*?)\n        \]", text, re.DOTALL):
        policy = kinds.get(name.rpartition("_")[2])
        if policy and "builtin" not in name:
            found[policy] |= {*re.findall(r'\n            \("(\w+)"', body)}
    return found


def test_the_table_is_that_of_cuda():
    theirs = listed()
    assert all(len(names) > 8 for names in theirs.values()), "the lists are written in another way now"
    for policy, names in table().items():
        assert {*names} - theirs[policy] == UNLISTED[policy]
        assert theirs[policy] & {*ops.__all__} <= {*names, *OF_OTHERS}


def both(*shape, seed=0):
    """The same parameter, ours and PyTorch's."""
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return Tensor(array.copy(), requires_grad=True), torch.tensor(array.copy(), requires_grad=True)


CALLS = {
    "linear": lambda f, x, w, v: f.linear(x, w),
    "conv2d": lambda f, x, w, v: f.conv2d(x.reshape(1, 1, 6, 8), w.reshape(5, 1, 4, 2)),
    "chain": lambda f, x, w, v: f.relu(f.linear(x, w)) @ v,
    "loss": lambda f, x, w, v: f.mse_loss(f.linear(x, w), f.linear(x, w) * 0.5),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_and_gradients_like_its_autocast(name, dtype):
    ours, theirs = zip(*(both(*shape, seed=i) for i, shape in enumerate([(6, 8), (5, 8), (5, 3)])), strict=True)
    with amp.autocast(dtype):
        out = CALLS[name](nn.functional, *ours)
    with torch.autocast("cpu", getattr(torch, dtype)):
        wanted = CALLS[name](torch.nn.functional, *theirs)
    assert str(out.dtype) == str(wanted.dtype).removeprefix("torch.")
    eps = 2.0 ** (-10 if dtype == "float16" else -7)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=4 * eps, atol=4 * eps * max(1, np.abs(b).max()))
    close(out.detach().numpy().astype(np.float32), wanted.detach().float().numpy())
    out.float().sum().backward()
    wanted.float().sum().backward()
    for x, t in zip(ours, theirs, strict=True):
        if t.grad is not None:
            assert x.grad.dtype == np.float32
            close(x.grad.numpy(), t.grad.numpy())
        else:
            assert x.grad is None


@pytest.mark.parametrize("kind, options", [("SGD", (8.0, 2.0, 0.5, 3)), ("Adam", (5.0, 2.7, 0.3, 2))])
def test_the_scaler_step_by_step(kind, options):
    w, t = both(6)
    first, second = getattr(optim, kind)([w], lr=0.1), getattr(torch.optim, kind)([t], lr=0.1)
    scaler, theirs = amp.GradScaler(*options), torch.amp.GradScaler("cpu", *options)
    rng = np.random.default_rng(3)
    for step in range(24):
        x = rng.standard_normal(6).astype(np.float32)
        if step in (2, 9, 10, 17):
            x[1] = (np.inf, -np.inf, np.nan)[step % 3]
        first.zero_grad()
        second.zero_grad()
        scaler.scale((w * Tensor(x)).sum()).backward()
        theirs.scale((t * torch.tensor(x)).sum()).backward()
        if step % 2:
            scaler.unscale_(first)
            theirs.unscale_(second)
            assert np.array_equal(w.grad.numpy(), t.grad.numpy(), equal_nan=True)
        scaler.step(first)
        theirs.step(second)
        scaler.update()
        theirs.update()
        assert scaler.state_dict() == theirs.state_dict()
        np.testing.assert_allclose(w.detach().numpy(), t.detach().numpy(), rtol=2e-6, atol=1e-7)
    theirs.load_state_dict(scaler.state_dict())
