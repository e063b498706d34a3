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
ROWS = [
    pytest.param(op, sample, id=f"{op.name}{sample}")
    for op in all_ops()
    for sample in [one for one in op.samples if not one.random][:1]
]


def parameter(*shape, seed=0, dtype=SINGLE):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype), requires_grad=True)


def kept():
    return region().kept


# ---- the table -------------------------------------------------------------------------------------------------------


def drawn(sample, types):
    """(args, kwargs) with floating Tensors of these types in turn."""
    numbers = iter(range(100))

    def wrap(array, wants_gradient):
        if array.dtype.kind == "f":
            array = array.astype(types[next(numbers) % len(types)])
        return Tensor(array, requires_grad=wants_gradient)

    return sample.draw(wrap, np.float32)


def in_type(values, dtype):
    """The same arguments with all floating Tensors in one type."""
    if isinstance(values, Tensor):
        return values.to(dtype) if values.dtype.kind == "f" else values
    if isinstance(values, dict):
        return {name: in_type(value, dtype) for name, value in values.items()}
    return type(values)(in_type(value, dtype) for value in values) if isinstance(values, list | tuple) else values


@pytest.mark.parametrize("op, sample", ROWS)
def test_ops_compute_in_the_type_of_the_table(op, sample):
    policy = POLICY.get(op.name)
    given = {"lower": [SINGLE], "float32": [HALF], "widest": [HALF, SINGLE], None: [HALF]}[policy]
    args, kwargs = drawn(sample, given)
    asked = policy == "float32" and kwargs.get("dtype") is not None
    meant = {"lower": HALF, "float32": SINGLE, "widest": SINGLE, None: HALF}[policy]
    if policy == "widest" and len([x for x in tensors(args, kwargs) if x.dtype.kind == "f"]) < 2 or asked:
        meant = HALF
    wanted = results(op, in_type(args, meant), in_type(kwargs, meant))
    with autocast("float16"):
        found = results(op, args, kwargs)
        assert autocast_dtype() == HALF
    assert [x.dtype for x in found] == [x.dtype for x in wanted]
    for x, y in zip(found, wanted, strict=True):
        assert np.array_equal(x.detach().numpy(), y.detach().numpy(), equal_nan=x.dtype.kind == "f")
        assert x.requires_grad == y.requires_grad


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
    x, w = parameter(2, 2).detach(), parameter(2, 2, seed=1)
    with autocast("float16"):
        first, second = x @ w, x @ w
        assert len(kept()) == 1 and first.node.edges[0].target == second.node.edges[0].target
        with autocast("float16"):
            x @ w
        assert len(kept()) == 1, "an inner block shares what the outer one has"
        (entry,) = kept().values()
        gone = weakref.ref(entry.rounded)
        x @ x
        assert len(kept()) == 1, "what is no parameter is not kept"
        block = region()
    assert not block.kept
    del first, second, entry
    gc.collect()
    assert gone() is None


def test_which_type_blocks_operators_and_layers_have():
    x, layer = parameter(3, 4), nn.Linear(4, 2)
    double, whole = Tensor(np.ones((2, 2))), Tensor(np.ones((2, 2), int))

    @autocast("float16")
    def product():
        return x @ x.T

    with autocast("float16"):
        assert (x @ x.T).dtype == HALF == x.mm(x.T).dtype == layer(x).dtype == nn.ReLU()(layer(x)).dtype
        assert (layer(x) ** 2).dtype == SINGLE == layer(x).sum().dtype == layer(x).softmax(1).dtype
        assert (layer(x) + x[:, :2]).dtype == SINGLE and (layer(x) * 2).dtype == HALF
        assert nn.CrossEntropyLoss()(layer(x), Tensor(np.array([0, 1, 1]))).dtype == SINGLE
        assert (double @ double).dtype == ops.exp(double).dtype == DOUBLE and (whole @ whole).dtype == np.int64
        with autocast("float16", enabled=False):
            assert (x @ x.T).dtype == SINGLE and autocast_dtype() is None and product().dtype == HALF
        context = contextvars.copy_context()
    assert product().dtype == HALF and (x @ x.T).dtype == SINGLE
    assert context.run(lambda: x @ x.T).dtype == HALF  # as recomputation does in backward
    with pytest.raises(ZeroDivisionError), autocast(HALF):
        1 / 0  # noqa: B018
    assert autocast_dtype() is None
    for dtype in ("cuda", "float32", 3):
        with pytest.raises(KindError, match="dtype"):
            autocast(dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_network_trains_with_parameters_and_statistics_in_float32(dtype):
    """Gradients and running statistics are near those without; a written parameter is rounded anew."""
    minigrad.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    exact, x, target = copy.deepcopy(model), parameter(5, 3, 6, 6).detach(), Tensor(np.array([0, 1, 2, 0, 1]))
    optimizer, eps, losses = optim.SGD(model.parameters(), lr=0.1), 2.0 ** (-10 if dtype == "float16" else -7), []
    ops.cross_entropy(exact(x), target).backward()
    for step in range(3):
        optimizer.zero_grad()
        with autocast(dtype):
            losses.append(ops.cross_entropy(model(x), target))
            losses[-1].backward()
        for mine, other in zip(model.parameters(), exact.parameters(), strict=True) if step == 0 else ():
            wanted = other.grad.numpy()
            assert mine.dtype == mine.grad.dtype == SINGLE
            np.testing.assert_allclose(mine.grad.numpy(), wanted, atol=16 * eps * max(1, np.abs(wanted).max()))
        for mine, other in zip(model.buffers(), exact.buffers(), strict=True) if step == 0 else ():
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=4 * eps, atol=4 * eps)
        optimizer.step()
    assert losses[0].item() > losses[1].item() > losses[2].item()


@pytest.mark.parametrize("order", [1, -1])
def test_losses_that_share_a_rounded_parameter_go_backward_one_by_one(order):
    """Backward lets go of what a graph keeps, and rounding keeps nothing; outside of the block gives the same bits."""
    x, shared, alone = parameter(2, 2).detach(), parameter(2, 2, seed=1), parameter(2, 2, seed=1)
    losses = [lambda w: (x @ w).sum(), lambda w: (x @ x @ w).sum()][::order]
    with autocast("float16"), minigrad.no_grad():
        assert not (x @ shared).requires_grad  # and loses no gradient below
    with autocast("float16"):
        for loss in [loss(shared) for loss in losses]:
            loss.backward()
    for loss in losses:
        with autocast("float16"):
            value = loss(alone)
        value.backward()
    assert np.array_equal(shared.grad.numpy(), alone.grad.numpy())


def test_gradients_of_gradients():
    x, w, exact = parameter(3, 4), parameter(2, 4, seed=1), parameter(2, 4, seed=1)
    with autocast("float16"):
        (slope,) = grad((ops.linear(x, w) ** 2).sum(), w, create_graph=True)
    (first,) = grad((ops.linear(x, exact) ** 2).sum(), exact, create_graph=True)
    found, wanted = (grad((one * one).sum(), of)[0].numpy() for one, of in ((slope, w), (first, exact)))
    assert slope.dtype == found.dtype == SINGLE
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2 * np.abs(wanted).max())
