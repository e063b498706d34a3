"""autocast: which op computes in which type, what is kept of parameters, and that nothing else changes."""

import contextvars
import copy
import gc
import threading
import weakref

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, autocast, nn, ops, optim
from minigrad.amp import autocast_dtype
from minigrad.core.errors import KindError
from minigrad.core.tape import grad
from minigrad.ops.autocast import region, table
from minigrad.parallel import run_local
from tests.ops.cases import all_ops
from tests.ops.test_ops import results, tensors

HALF, SINGLE, DOUBLE = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
POLICY = {name: policy for policy, names in table().items() for name in names}
OPS = [op for op in all_ops() if not op.samples[0].random]


def parameter(*shape, seed=0, dtype=SINGLE):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype), requires_grad=True)


# ---- the table -------------------------------------------------------------------------------------------------------


def drawn(sample, types):
    """(args, kwargs) with floating Tensors of these types in turn."""
    numbers = iter(range(100))
    typed = lambda array: array.astype(types[next(numbers) % len(types)]) if array.dtype.kind == "f" else array
    return sample.draw(lambda array, wants: Tensor(typed(array), requires_grad=wants), np.float32)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_ops_compute_in_the_type_of_the_table(op):
    """As without autocast of arguments in the type that is meant."""
    policy, sample = POLICY.get(op.name), op.samples[0]
    given = {"lower": [SINGLE], "float32": [HALF], "widest": [HALF, SINGLE], None: [HALF]}[policy]
    args, kwargs = drawn(sample, given)
    meant = {"lower": HALF, "float32": SINGLE, "widest": SINGLE, None: HALF}[policy]
    numbers = iter([x.to(meant if x.dtype.kind == "f" else x.dtype) for x in tensors(args, kwargs)])
    wanted = results(op, *sample.draw(lambda array, wants: next(numbers)))
    with autocast("float16"):
        found = results(op, args, kwargs)
        assert autocast_dtype() == HALF
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype and x.requires_grad == y.requires_grad
        assert np.array_equal(x.detach().numpy(), y.detach().numpy(), equal_nan=x.dtype.kind == "f")


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
        assert half.cumsum(0, dtype="float16").dtype == ops.cat([half]).dtype == HALF
        with autocast("float16", enabled=False):
            assert (x @ x.T).dtype == SINGLE and autocast_dtype() is None and product().dtype == HALF
        context = contextvars.copy_context()
        layer(x).sum().backward()
        assert (x @ x.T).dtype == HALF and layer.weight.grad.dtype == SINGLE
    assert product().dtype == HALF and (x @ x.T).dtype == SINGLE
    assert context.run(lambda: x @ x.T).dtype == HALF  # as recomputation does in backward
    with pytest.raises(ZeroDivisionError), autocast(HALF):
        1 / 0  # noqa: B018
    assert autocast_dtype() is None
    for dtype in ("float32", 3):
        with pytest.raises(KindError, match="dtype"):
            autocast(dtype)


# ---- parameters ------------------------------------------------------------------------------------------------------


def test_ranks_take_over_the_block_and_share_no_rounded_parameter():
    x, both = parameter(2, 2), threading.Barrier(2)

    def run(world):
        out = x @ x
        both.wait(10)  # one thread may have the number of another that has ended
        return out.dtype, region(), out.node.kept["other"]

    with autocast("float16"):
        (first, own, one), (second, other, two) = run_local(run, 2)
    assert first == second == HALF and own is other and one is not two


def test_a_parameter_is_rounded_once_in_a_block():
    """An inner block shares what the outer one has; what is no parameter is not kept, nor anything after the block."""
    x, w = parameter(2, 2).detach(), parameter(2, 2, seed=1)
    with autocast("float16"):
        block = region()
        first, second = x @ w, x @ w
        with autocast("float16"):
            x @ w, x @ x
        (entry,) = block.kept.values()
        assert first.node.edges[0].target == second.node.edges[0].target
        gone = weakref.ref(entry.rounded)
    assert not block.kept
    del first, second, entry
    gc.collect()
    assert gone() is None


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


@pytest.mark.parametrize("order", [1, -1])
def test_losses_that_share_a_rounded_parameter_go_backward_one_by_one(order):
    """Backward lets go of what a graph keeps, and rounding keeps nothing; outside of the block gives the same bits."""
    x, shared, alone = parameter(2, 2).detach(), parameter(2, 2, seed=1), parameter(2, 2, seed=1)
    losses = [lambda w: (x @ w).sum(), lambda w: (x @ x @ w).sum()][::order]
    with autocast("float16"):
        with minigrad.no_grad():
            assert not (x @ shared).requires_grad  # and loses no gradient below
        for loss in [loss(shared) for loss in losses]:
            loss.backward()
    for loss in losses:
        with autocast("float16"):
            value = loss(alone)
        value.backward()
    assert np.array_equal(shared.grad.numpy(), alone.grad.numpy())


def test_gradients_of_gradients():
    x, w, found = parameter(3, 4), parameter(2, 4, seed=1), []
    for enabled in (True, False):
        with autocast("float16", enabled=enabled):
            (slope,) = grad((ops.linear(x, w) ** 2).sum(), w, create_graph=True)
        found.append(grad((slope * slope).sum(), w)[0].numpy())
    assert slope.dtype == found[0].dtype == SINGLE
    np.testing.assert_allclose(*found, rtol=2e-2, atol=2e-2 * np.abs(found[1]).max())
