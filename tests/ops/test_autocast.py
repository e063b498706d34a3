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
from minigrad.core.interceptors import Interceptor, proceed
from minigrad.core.tape import grad, write
from minigrad.ops.autocast import region, table
from minigrad.parallel import SyncBatchNorm, run_local
from tests.ops.cases import all_ops
from tests.ops.test_ops import results, tensors

HALF, SINGLE, DOUBLE = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
POLICY = {name: policy for policy, names in table().items() for name in names}
ROWS = [
    pytest.param(op, sample, id=f"{op.name}{sample}")
    for op in all_ops()
    for sample in [one for one in op.samples if not one.random][:2]
]


def parameter(*shape, seed=0, dtype=SINGLE):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype), requires_grad=True)


def kept():
    return region().kept


# ---- the table -------------------------------------------------------------------------------------------------------


def test_every_op_of_the_table_is_there_once():
    names = [name for policy in table().values() for name in policy]
    assert len(names) == len({*names}) > 40 and {*names} <= {*ops.__all__}


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


@pytest.mark.parametrize("name", ["linear", "exp", "cat"])
def test_float64_and_integers_stay(name):
    x, y = (Tensor(np.arange(4.0).reshape(2, 2)) for _ in range(2))
    whole = Tensor(np.arange(4).reshape(2, 2))
    with autocast("float16"):
        out = {"linear": lambda: ops.linear(x, y), "exp": lambda: ops.exp(x), "cat": lambda: ops.cat([x, y])}[name]()
        assert out.dtype == DOUBLE and ops.matmul(whole, whole).dtype == np.int64 and whole.sum().dtype == np.int64


def test_operators_methods_and_layers_go_by_the_table():
    x, layer = parameter(3, 4), nn.Linear(4, 2)
    with autocast("float16"):
        assert (x @ x.T).dtype == HALF == x.mm(x.T).dtype == layer(x).dtype == nn.ReLU()(layer(x)).dtype
        assert (layer(x) ** 2).dtype == SINGLE == layer(x).sum().dtype == layer(x).softmax(1).dtype
        assert (layer(x) + x[:, :2]).dtype == SINGLE and (layer(x) * 2).dtype == HALF
        loss = nn.CrossEntropyLoss()(layer(x), Tensor(np.array([0, 1, 1])))
    assert loss.dtype == SINGLE


def images(*shape):
    return Tensor(np.random.default_rng(4).standard_normal(shape).astype(SINGLE))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_statistics_and_parameters_of_norms_are_float32(dtype):
    layer = nn.BatchNorm2d(4)
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.ReLU()), images(5, 3, 6, 6)
    exact = nn.Sequential(model[0], copy.deepcopy(layer), nn.ReLU())
    eps = 2.0 ** (-10 if dtype == "float16" else -7)
    for model_of_mode in (model.train, model.eval):
        model_of_mode()
        exact.train(model.training)
        with autocast(dtype):
            out = model(x)
        assert out.dtype.name == dtype and layer.running_var.dtype == SINGLE
        np.testing.assert_allclose(out.float().detach().numpy(), exact(x).detach().numpy(), rtol=8 * eps, atol=16 * eps)
    for mine, other in zip(layer.buffers(), exact[1].buffers(), strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=4 * eps, atol=4 * eps)
    (out * out).sum().backward()
    assert all(parameter.grad.dtype == SINGLE for parameter in model.parameters())


def test_sync_batch_norm_is_batch_norm_of_the_whole_batch():
    def run(world, whole):
        minigrad.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        model = model if whole else SyncBatchNorm.convert(model, world)
        part = slice(None) if whole else slice(world.rank * 3, world.rank * 3 + 3)
        with autocast("float16"):
            out = model(images(6, 3, 6, 6)[part])
        (out * images(6, 4, 4, 4)[part]).sum().backward()
        return out.detach(), [parameter.grad.numpy() for parameter in model.parameters()]

    ((wanted, gradients),) = run_local(run, 1, True)
    (first, one), (second, two) = run_local(run, 2, False)
    assert first.dtype == HALF
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-2 * max(1, np.abs(b).max()))
    close(ops.cat([first, second]).numpy(), wanted.numpy())
    for mine, other, both in zip(one, two, gradients, strict=True):
        close(mine + other, both)


# ---- blocks ----------------------------------------------------------------------------------------------------------


def test_blocks_nest_and_functions_can_be_decorated():
    x = parameter(2, 2)

    @autocast("float16")
    def product():
        return x @ x

    assert product().dtype == HALF and (x @ x).dtype == SINGLE and autocast_dtype() is None
    with autocast("float16"):
        with autocast("float16", enabled=False):
            assert (x @ x).dtype == SINGLE and autocast_dtype() is None
            assert product().dtype == HALF
        assert (x @ x).dtype == HALF
    with pytest.raises(ZeroDivisionError), autocast(HALF):
        1 / 0  # noqa: B018
    assert autocast_dtype() is None


@pytest.mark.parametrize("dtype", ["cuda", "float32", "half", None, 3, np.float64])
def test_other_types_are_refused(dtype):
    with pytest.raises(KindError, match="dtype"):
        autocast(dtype)


def test_enabled_is_a_flag():
    with pytest.raises(KindError, match="enabled is 'no'"):
        autocast("float16", "no")


def test_threads_have_modes_of_their_own():
    x, seen = parameter(2, 2), []
    with autocast("float16"):
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
    assert seen == [SINGLE]


def test_ranks_take_over_the_block_and_share_no_rounded_parameter():
    x, both = parameter(2, 2), threading.Barrier(2)

    def run(world):
        out = x @ x
        both.wait(10)  # one thread may have the number of another that has ended
        return out.dtype, region(), out.node.kept["other"]

    with autocast("float16"):
        (first, own, one), (second, other, two) = run_local(run, 2)
    assert first == second == HALF and own is other and one is not two


# ---- gradients -------------------------------------------------------------------------------------------------------


def network():
    minigrad.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def loss_of(model):
    x = Tensor(np.random.default_rng(1).standard_normal((6, 5)).astype(SINGLE))
    return ops.cross_entropy(model(x), Tensor(np.array([0, 1, 2, 0, 1, 2])))


def test_gradients_of_parameters_are_float32_and_near_those_without():
    exact, rounded = network(), network()
    loss_of(exact).backward()
    with autocast("float16"):
        loss = loss_of(rounded)
    loss.backward()
    for p, q in zip(exact.parameters(), rounded.parameters(), strict=True):
        assert q.dtype == q.grad.dtype == SINGLE
        assert 0 < np.abs(p.grad.numpy() - q.grad.numpy()).max() < 4e-3 * max(1, np.abs(p.grad.numpy()).max())


def test_backward_inside_a_block_gives_the_same_bits():
    outside, inside = network(), network()
    with autocast("float16"):
        loss = loss_of(outside)
    loss.backward()
    with autocast("float16"):
        loss_of(inside).backward()
    for p, q in zip(outside.parameters(), inside.parameters(), strict=True):
        assert np.array_equal(p.grad.numpy(), q.grad.numpy())


def test_gradients_of_gradients():
    x, w = parameter(3, 4), parameter(2, 4, seed=1)
    with autocast("float16"):
        out = (ops.linear(x, w) ** 2).sum()
        (slope,) = grad(out, w, create_graph=True)
    (curvature,) = grad((slope * slope).sum(), w)
    exact, (a, b) = parameter(2, 4, seed=1), (x.detach().numpy(), w.detach().numpy())
    (first,) = grad((ops.linear(Tensor(a), exact) ** 2).sum(), exact, create_graph=True)
    (second,) = grad((first * first).sum(), exact)
    assert slope.dtype == curvature.dtype == SINGLE and b.dtype == SINGLE
    np.testing.assert_allclose(curvature.numpy(), second.numpy(), rtol=2e-2, atol=2e-2 * np.abs(second.numpy()).max())


# ---- rounded parameters ----------------------------------------------------------------------------------------------


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


def test_a_parameter_that_was_written_is_rounded_anew():
    w = parameter(2, 2)
    one = Tensor(np.eye(2, dtype=SINGLE))
    with autocast("float16"):
        before = (w @ one).detach().numpy()
        write(w)[...] = 7
        assert np.all((w @ one).detach().numpy() == 7) and not np.all(before == 7)
        w.data = np.full((2, 2), 5, SINGLE)
        assert np.all((w @ one).detach().numpy() == 5) and len(kept()) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_losses_that_share_a_rounded_parameter_go_backward_one_by_one(order):
    """Backward lets go of what a graph keeps, and rounding keeps nothing."""
    x, shared, alone = parameter(2, 2).detach(), parameter(2, 2, seed=1), parameter(2, 2, seed=1)
    losses = [lambda w: (x @ w).sum(), lambda w: (x @ x @ w).sum()][::order]
    with autocast("float16"):
        for loss in [loss(shared) for loss in losses]:
            loss.backward()
        losses[0](shared).backward()
        assert len(kept()) == 1
    for loss in (*losses, losses[0]):
        with autocast("float16"):
            loss(alone).backward()
    assert np.array_equal(shared.grad.numpy(), alone.grad.numpy())


def test_an_update_inside_a_block_is_seen():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    with autocast("float16"):
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2]


def test_what_is_rounded_without_a_graph_gets_no_gradient_and_loses_none():
    x, w = parameter(2, 2).detach(), parameter(2, 2, seed=1)
    with autocast("float16"):
        with minigrad.no_grad():
            assert not (x @ w).requires_grad
        out = (x @ w).sum()
    out.backward()
    assert w.grad is not None and w.grad.dtype == SINGLE


def test_a_tool_above_it_changes_nothing():
    class Above(Interceptor):
        level = 3

        def apply(self, primitive, values, below):
            names.append(primitive.name)
            return proceed(below, primitive, values)

    x, names = parameter(2, 2), []
    with autocast("float16"), Above():
        assert (x @ x).dtype == HALF and names == ["cast", "product"]


def test_a_block_is_taken_up_again_in_its_context():
    """As recomputation does in backward."""
    x = parameter(2, 2)
    with autocast("float16"):
        context = contextvars.copy_context()
        wanted = (x @ x).detach().numpy()
    assert np.array_equal(context.run(lambda: x @ x).detach().numpy(), wanted)


def test_inside_modules_ops_still_wait_for_one_another():
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
    x = parameter(6, 5).detach()
    with autocast("float16"):
        out = model(x)
        layer = model[0]
        separate = ops.relu(ops.linear(x, layer.weight, layer.bias))
    assert out.dtype == HALF and np.array_equal(out.detach().numpy(), separate.detach().numpy())
