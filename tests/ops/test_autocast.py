"""autocast: which op computes in which type, and that nothing else changes."""

import contextvars
import copy

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, autocast, nn, ops, optim
from minigrad.amp import autocast_dtype
from minigrad.core.errors import KindError
from minigrad.core.tape import grad
from minigrad.ops.autocast import table
from minigrad.parallel import run_local
from tests.ops.cases import all_ops
from tests.ops.test_ops import close, results

HALF, SINGLE, DOUBLE = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
POLICY = {name: policy for policy, names in table().items() for name in names}
OPS = [op for op in all_ops() if not op.samples[0].random]


def parameter(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(SINGLE), requires_grad=True)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_ops_compute_in_the_type_of_the_table(op):
    """Nearly as without autocast of the same rounded arguments in float32."""
    policy, sample = POLICY.get(op.name), op.samples[0]
    rounded = lambda array, dtype: array.astype(HALF).astype(dtype) if array.dtype.kind == "f" else array
    draw = lambda dtype: sample.draw(lambda x, wants: Tensor(rounded(x, dtype), requires_grad=wants), np.float32)
    wanted, meant = results(op, *draw(SINGLE)), SINGLE if policy == "float32" else HALF
    with autocast("float16"):
        found = results(op, *draw(SINGLE if policy == "lower" else HALF))
    for x, y in zip(found, wanted, strict=True):
        if x.dtype.kind != "f" or op.name == "to":
            continue
        assert x.dtype == meant and x.requires_grad == y.requires_grad
        close(x.detach().numpy(), y.detach().numpy(), np.finfo(meant).eps, 16)


def test_which_type_blocks_operators_and_layers_have():
    x, layer = parameter(3, 4), nn.Linear(4, 2)
    double, whole, half = Tensor(np.ones((2, 2))), Tensor(np.ones((2, 2), int)), Tensor(np.ones(2, HALF))

    @autocast("float16")
    def product():
        return x @ x.T

    with autocast("float16"):
        assert (x @ x.T).dtype == HALF == x.mm(x.T).dtype == layer(x).dtype == nn.ReLU()(layer(x)).dtype
        assert (layer(x) ** 2).dtype == SINGLE == layer(x).sum().dtype == layer(x).softmax(1).dtype
        assert (layer(x) + x[:, :2]).dtype == SINGLE and (layer(x) * 2).dtype == HALF
        assert nn.CrossEntropyLoss()(layer(x), Tensor(np.array([0, 1, 1]))).dtype == SINGLE
        assert (double @ double).dtype == ops.exp(double).dtype == DOUBLE and (whole @ whole).dtype == np.int64
        assert half.prod(dtype="float16").dtype == HALF and ops.cat([half, x[0]]).dtype == SINGLE
        with autocast("float16", enabled=False):
            assert (x @ x.T).dtype == SINGLE and autocast_dtype() is None and product().dtype == HALF
        context = contextvars.copy_context()
        layer(x).sum().backward()
        assert (x @ x.T).dtype == HALF and layer.weight.grad.dtype == SINGLE
        assert run_local(lambda world: (x @ x.T).dtype, 2) == [HALF, HALF]
    assert product().dtype == HALF and (x @ x.T).dtype == SINGLE
    assert context.run(lambda: x @ x.T).dtype == HALF  # as recomputation does in backward
    for dtype in ("float32", 3):
        with pytest.raises(KindError, match="dtype"):
            autocast(dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_network_trains_with_parameters_and_statistics_in_float32(dtype):
    """Gradients and running statistics are near those without; a written parameter is rounded anew."""
    minigrad.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    exact, x, target = copy.deepcopy(model), parameter(5, 3, 6, 6).detach(), Tensor(np.array([0, 1, 2, 0, 1]))
    optimizer, eps = optim.SGD(model.parameters(), lr=0.1), 2.0 ** (-10 if dtype == "float16" else -7)
    ops.cross_entropy(exact(x), target).backward()
    with autocast(dtype):
        first = ops.cross_entropy(model(x), target)
        first.backward()
        for mine, other in zip(model.parameters(), exact.parameters(), strict=True):
            assert mine.dtype == mine.grad.dtype == SINGLE
            largest = max(1, np.abs(other.grad.numpy()).max())
            np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), atol=16 * eps * largest)
        for mine, other in zip(model.buffers(), exact.buffers(), strict=True):
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=4 * eps, atol=4 * eps)
        optimizer.step()
        assert ops.cross_entropy(model(x), target).item() < first.item()


def test_gradients_of_gradients():
    x, w, found = parameter(3, 4), parameter(2, 4, seed=1), []
    for enabled in (True, False):
        with autocast("float16", enabled=enabled):
            (slope,) = grad((ops.linear(x, w) ** 2).sum(), w, create_graph=True)
        found.append(grad((slope * slope).sum(), w)[0].numpy())
    assert slope.dtype == found[0].dtype == SINGLE
    np.testing.assert_allclose(*found, rtol=2e-2, atol=2e-2 * np.abs(found[1]).max())
