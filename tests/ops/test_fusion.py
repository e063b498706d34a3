"""Operations that run in one pass: values and gradients of the separate ones, and nobody can tell when it happened."""

import itertools
import threading
import weakref

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, detect_anomaly, gradcheck, gradgradcheck, nn, no_grad, optim
from minigrad.core.tensor import Leaf
from minigrad.fusion import Waiting
from minigrad.nn import functional as F
from minigrad_kernels import conv2d


class Called(nn.Module):
    """A function as a Module: inside its call operations may wait for each other, outside of one they do not."""

    def __init__(self, function):
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def names(tensor):
    """The primitives below a result, the last one first, where each has one input with history."""
    found, node = [], tensor.node
    while node is not None:
        found.append(node.primitive.name)
        below = [edge.target.node for edge in node.edges if not isinstance(edge.target.node, Leaf)]
        node = below[0] if below else None
    return found


def drawn(*shapes, dtype="float32", seed=3):
    random = np.random.default_rng(seed)
    return [Tensor(random.standard_normal(shape).astype(dtype), requires_grad=True) for shape in shapes]


def waits(tensor):
    return isinstance(tensor, Waiting) and tensor.call is not None


IMAGES = (3, 5, 9, 8), (6, 5, 3, 3), (6,)
ROWS = (7, 5), (4, 5), (4,)
NORM = (4, 3, 5, 6), (3,), (3,), (4, 3, 5, 6)
ADDED = *IMAGES, (3, 6, 9, 8)
SAME = (3, 5, 9, 8), (5, 5, 3, 3), (5,)
MANY = (4, 32, 16, 18), (32, 32, 3, 3), (32,)  # which in float32 goes by Winograd's way


def normed(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, True)


CHAINS = {  # name: (function, shapes of its arguments, the primitive of the result where all runs in one pass)
    "conv relu": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), IMAGES, "conv2d_relu"),
    "conv relu, no bias": (lambda x, w: F.relu(F.conv2d(x, w, stride=2)), IMAGES[:2], "conv2d_relu"),
    "conv relu pool": (
        lambda x, w, b: F.max_pool2d(F.relu(F.conv2d(x, w, b)), 2), IMAGES, "conv2d_relu_max_pool2d"
    ),
    "conv pool relu": (
        lambda x, w, b: F.relu(F.max_pool2d(F.conv2d(x, w, b), 2)), IMAGES, "conv2d_relu_max_pool2d"
    ),
    "conv pool": (
        lambda x, w, b: F.max_pool2d(F.conv2d(x, w, b, padding=2, dilation=2), 3, 2, 1), IMAGES, "conv2d_max_pool2d"
    ),
    "conv relu pool, no bias": (
        lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 3, 1), IMAGES[:2], "conv2d_relu_max_pool2d"
    ),
    "many channels": (
        lambda x, w, b: F.max_pool2d(F.relu(F.conv2d(x, w, b)), 2), MANY, "conv2d_relu_max_pool2d"
    ),
    "conv add": (lambda x, w, b, r: F.conv2d(x, w, b, padding=1) + r, ADDED, "conv2d_add"),
    "conv add relu": (lambda x, w, b, r: F.relu(F.conv2d(x, w, b, padding=1) + r), ADDED, "conv2d_add_relu"),
    "add conv relu": (lambda x, w, b, r: F.relu(r + F.conv2d(x, w, None, 1, 1)), ADDED, "conv2d_add_relu"),
    "conv, itself, relu": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1) + x), SAME, "conv2d_add_relu"),
    "many channels, add relu": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1) + x), MANY, "conv2d_add_relu"),
    "linear relu": (lambda x, w, b: F.relu(F.linear(x, w, b)), ROWS, "linear_relu"),
    "linear relu, no bias": (lambda x, w: F.relu(F.linear(x, w)), ROWS[:2], "linear_relu"),
    "norm relu": (lambda x, w, b, r: F.relu(normed(x, w, b)), NORM, "batch_norm_relu"),
    "norm add": (lambda x, w, b, r: normed(x, w, b) + r, NORM, "batch_norm"),
    "norm add relu": (lambda x, w, b, r: F.relu(normed(x, w, b) + r), NORM, "batch_norm_relu"),
    "add norm relu": (lambda x, w, b, r: F.relu(r + normed(x, w, b)), NORM, "batch_norm_relu"),
    "norm, itself, relu": (lambda x, w, b, r: F.relu(normed(x, None, None) + x * r), NORM, "batch_norm_relu"),
}  # fmt: skip
chains = pytest.mark.parametrize("function, shapes, name", CHAINS.values(), ids=CHAINS)


def gradients(function, arguments, weights):
    for argument in arguments:
        argument.grad = None
    out = function(*arguments)
    (out * weights).sum().backward()
    return out, [argument.grad for argument in arguments]


@chains
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_are_those_of_separate_operations_and_gradients_to_rounding(function, shapes, name, dtype):
    arguments = drawn(*shapes, dtype=dtype)
    (weights,) = drawn(function(*arguments).shape, dtype=dtype, seed=4)
    apart, apart_grads = gradients(function, arguments, weights.detach())
    fused, fused_grads = gradients(Called(function), arguments, weights.detach())
    assert names(fused)[0] == name and names(apart)[0] != name or name == "batch_norm"
    assert isinstance(fused, Tensor) and fused.array.tobytes() == apart.array.tobytes()
    bound = 64 * np.finfo(dtype).eps
    for mine, separate in zip(fused_grads, apart_grads, strict=True):
        if separate is None:
            assert mine is None
            continue
        assert np.abs(mine.array - separate.array).max() <= bound * max(1, np.abs(separate.array).max())


@chains
def test_first_and_second_derivatives(function, shapes, name):
    arguments = drawn(*shapes, dtype="float64", seed=7)
    assert gradcheck(Called(function), arguments)
    assert gradgradcheck(Called(function), arguments)


@chains
def test_the_same_without_a_graph(function, shapes, name):
    arguments = drawn(*shapes)
    apart = function(*arguments)
    with no_grad():
        fused = Called(function)(*arguments)
    assert fused.is_leaf and not fused.requires_grad and fused.array.tobytes() == apart.array.tobytes()


@chains
def test_nan_and_infinity_are_those_of_separate_operations(function, shapes, name):
    for value, argument in itertools.product((np.nan, np.inf, -np.inf), range(len(shapes))):
        arguments = drawn(*shapes)
        arguments[argument].array.reshape(-1)[1] = value
        apart, apart_grads = gradients(function, arguments, 1.0)
        fused, fused_grads = gradients(Called(function), arguments, 1.0)
        np.testing.assert_array_equal(fused.array, apart.array)
        for mine, separate in zip(fused_grads, apart_grads, strict=True):
            if separate is not None:
                np.testing.assert_array_equal(np.isnan(mine.array), np.isnan(separate.array))


def test_in_sequential_and_in_a_forward_method():
    row = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 5), nn.ReLU())

    class Net(nn.Module):
        def __init__(self):
            self.conv, self.fc = row[0], row[4]

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv(x)), 2)
            x = x.flatten(1)
            return self.fc(x).relu()

    (x,) = drawn((2, 1, 8, 8))
    one, other = row(x), Net()(x)
    assert names(one) == names(other) == ["linear_relu", "reshape", "conv2d_relu_max_pool2d"]
    assert one.array.tobytes() == other.array.tobytes()


def test_a_second_use_is_computed_once_where_it_comes_first():
    """relu waits for the convolution; -y looks at it; relu is then applied to what was computed."""

    def function(x, w):
        y = F.conv2d(x, w)
        return F.relu(y) - F.relu(-y)

    arguments = drawn(*IMAGES[:2])
    out = Called(function)(*arguments)
    assert names(out)[:3] == ["sub", "relu", "conv2d"]
    assert out.array.tobytes() == F.conv2d(*arguments).array.tobytes()


def test_gradients_of_a_result_used_twice():
    def function(x, w, b):
        y = F.conv2d(x, w, b)
        pooled = F.max_pool2d(F.relu(y), 2)
        return pooled.sum() + (y * y).sum() + F.relu(y).sum()

    arguments = drawn(*IMAGES, dtype="float64")
    assert gradcheck(Called(function), arguments)


@pytest.mark.parametrize(
    "look",
    [
        lambda y: y.array,
        lambda y: y.node,
        lambda y: y.version,
        lambda y: y.detach(),
        lambda y: repr(y),
        lambda y: y.retain_grad(),
        lambda y: y.register_hook(lambda g: None),
        lambda y: np.asarray(y.detach().array),
        lambda y: y[0],
    ],
    ids="data node version detach repr retain_grad hook array subscript".split(),
)
def test_whoever_looks_has_it_computed(look):
    kept = []

    def function(x, w):
        y = F.conv2d(x, w)
        look(y)
        kept.append(waits(y))
        return F.relu(y)

    out = Called(function)(*drawn(*IMAGES[:2]))
    assert kept == [False] and names(out) == ["relu", "conv2d"]


def test_a_result_lets_go_of_what_it_was_computed_from():
    x, w = (tensor.detach() for tensor in drawn(*IMAGES[:2]))
    x, kept = Tensor(x.array.copy()), []
    gone = weakref.ref(x.array)

    def function(x):
        kept.append(F.conv2d(x, w))
        return F.relu(kept[0])

    out = Called(function)(x)
    del x
    assert gone() is None and np.array_equal(out.array, np.maximum(kept[0].array, 0))


def test_its_array_can_be_replaced():
    def function(x, w):
        y = F.conv2d(x, w)
        y.data = np.ones((2, 3), np.float32)
        return F.relu(y), y

    out, y = Called(function)(*drawn(*IMAGES[:2]))
    assert out.shape == y.shape == (2, 3)
    assert not waits(y) and names(y) == ["conv2d"] and (out.array == 1).all()


def test_shape_type_and_device_are_known_without_computing():
    kept = []

    def function(x, w):
        y = F.conv2d(x, w)
        kept.append((y.shape, y.dtype, y.device, y.ndim, y.requires_grad, y.dim(), len(y.size())))
        return F.relu(y)

    arguments = drawn(*IMAGES[:2])
    out = Called(function)(*arguments)
    assert kept == [((3, 6, 7, 6), np.float32, "cpu", 4, True, 4, 4)] and names(out) == ["conv2d_relu"]


def test_hooks_see_what_they_would_have_seen():
    model, (x,), seen = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), drawn((1, 1, 4, 4)), []
    whole = model(x)
    handle = model[0].register_forward_hook(lambda module, arguments, out: seen.append(out.array.copy()))
    apart = model(x)
    handle.remove()
    assert names(apart) == ["relu", "conv2d"] and names(whole) == ["conv2d_relu"]
    assert np.maximum(seen[0], 0).tobytes() == whole.array.tobytes() == apart.array.tobytes()


def test_anomaly_mode_looks_at_every_result():
    with detect_anomaly():
        out = Called(CHAINS["conv relu"][0])(*drawn(*IMAGES))
    assert names(out) == ["relu", "conv2d"]


def test_what_is_written_meanwhile_was_read_before():
    """An optimiser's step between a convolution and its relu: values of before, and backward refuses."""
    x, w = drawn(*IMAGES[:2])
    optimizer = optim.SGD([w], lr=1.0)
    w.grad = Tensor(np.ones(w.shape, np.float32))
    wanted = F.relu(F.conv2d(x, w)).array.tobytes()

    def function(x, w):
        y = F.conv2d(x, w)
        optimizer.step()
        return F.relu(y)

    out = Called(function)(x, w)
    assert out.array.tobytes() == wanted
    with pytest.raises(RuntimeError, match="weight was changed after it was used"):
        out.sum().backward()


def test_statistics_are_updated_when_batch_norm_is_called():
    norm, seen = nn.BatchNorm2d(3), []

    def function(x):
        y = norm(x)
        seen.append(norm.running_mean.tolist())
        return F.relu(y)

    out = Called(function)(*drawn(NORM[0]))
    assert names(out) == ["batch_norm_relu"] and seen[0] == norm.running_mean.tolist() != [0.0, 0.0, 0.0]


def test_modes_of_the_moment_of_the_call():
    def function(x, w):
        with no_grad():
            constant = F.conv2d(x, w)
        varied = F.conv2d(x, w)
        with no_grad():
            free = F.relu(varied)
        return F.relu(constant), F.relu(varied), free

    constant, varied, free = Called(function)(*drawn(*IMAGES[:2]))
    assert not constant.requires_grad and not free.requires_grad and varied.requires_grad
    assert constant.array.tobytes() == varied.array.tobytes() == free.array.tobytes()


def test_modes_of_the_engine_are_those_of_the_call():
    """A convolution inside `with minigrad.winograd(False):` is computed that way, though its relu comes after."""
    arguments = drawn(*MANY)
    with minigrad.winograd(False):
        apart = F.relu(F.conv2d(*arguments))

    def function(*arguments):
        with minigrad.winograd(False):
            y = F.conv2d(*arguments)
        return F.relu(y)

    assert Called(function)(*arguments).array.tobytes() == apart.array.tobytes()
    assert F.relu(F.conv2d(*arguments)).array.tobytes() != apart.array.tobytes()


def test_results_kept_until_after_the_call_are_those_of_then():
    kept = {}

    def function(x, w, b):
        kept["conv"] = y = F.conv2d(x, w, b)
        kept["relu"] = y = F.relu(y)
        return F.max_pool2d(y, 2)

    arguments = drawn(*IMAGES)
    wanted = F.conv2d(*arguments).array.copy()
    Called(function)(*arguments)
    arguments[1].array[...] = 0
    assert not waits(kept["conv"]) and not waits(kept["relu"])
    assert kept["conv"].array.tobytes() == wanted.tobytes()
    assert kept["relu"].array.tobytes() == np.maximum(wanted, 0).tobytes()


def test_an_exception_leaves_nothing_waiting():
    kept = []

    def function(x, w):
        kept.append(F.conv2d(x, w))
        raise KeyError("stop")

    arguments = drawn(*IMAGES[:2])
    with pytest.raises(KeyError, match="stop"):
        Called(function)(*arguments)
    assert not waits(kept[0])
    assert type(F.conv2d(*arguments)) is Tensor  # outside of a call again


def test_frozen_parts_get_no_gradient():
    x, w, b = drawn(*IMAGES)
    for frozen in (x, w, b):
        frozen.requires_grad_(False)
        out = Called(CHAINS["conv relu pool"][0])(x, w, b)
        out.sum().backward()
        assert frozen.grad is None and all(t.grad is not None for t in (x, w, b) if t is not frozen)
        frozen.requires_grad_(True)
        x.grad = w.grad = b.grad = None


def test_shapes_that_broadcast_are_added_separately():
    x, w, b, _ = drawn(*NORM)
    (row,) = drawn((1, 3, 1, 1))
    out = Called(lambda x, w, b, r: normed(x, w, b) + r)(x, w, b, row)
    assert names(out) == ["add", "batch_norm"]
    out = Called(lambda x, w, r: F.conv2d(x, w) + r)(x, *drawn((3, 3, 1, 1)), row)
    assert names(out) == ["add", "conv2d"]


def test_a_residual_block_of_inference_is_one_pass_a_convolution(monkeypatch):
    block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
    norm, (x,) = nn.BatchNorm2d(4), drawn((2, 4, 6, 6))
    norm.running_mean.array[...], norm.running_var.array[...] = 0.5, 2.0
    block.eval()
    norm.eval()
    seen, run = [], conv2d.forward

    def forward(x, w, bias, relu, *rest):
        seen.append((relu, rest[-1] is not None))
        return run(x, w, bias, relu, *rest)

    with no_grad():
        expected = F.relu(norm(block(x)) + x)
        monkeypatch.setattr(conv2d, "forward", forward)
        found = Called(lambda x: F.relu(norm(block(x)) + x))(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert seen == [(True, False), (True, True)]


def test_two_threads_do_not_disturb_each_other():
    model = nn.Sequential(nn.Conv2d(5, 6, 3), nn.ReLU(), nn.MaxPool2d(2))
    inputs = [drawn(IMAGES[0], seed=seed)[0] for seed in range(4)]
    wanted, found = [model(x).array.tobytes() for x in inputs], {}

    def work(i):
        for _ in range(20):
            found[i] = model(inputs[i]).array.tobytes()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [found[i] for i in range(4)] == wanted


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_rows_of_16_bits_are_rectified_at_once(half):
    found = []
    for call in (Called(lambda x, w: F.relu(F.linear(x, w))), lambda x, w: F.relu(F.linear(x, w))):
        x, w = (t.detach().to(half).requires_grad_() for t in drawn(*ROWS[:2]))
        out = call(x, w)
        out.sum().backward()
        found.append((names(out), [t.detach().float().numpy() for t in (out, x.grad, w.grad)]))
        assert x.grad.dtype == w.grad.dtype == half
    assert [one[0] for one in found] == [["linear_relu"], ["relu", "linear"]]
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rows, width", [(4, 0), (0, 5)])
def test_layers_without_rows_or_columns(rows, width):
    model = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))
    x = minigrad.ones(rows, 3, requires_grad=True)
    out = model(x)
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.array, np.zeros((rows, 3)))
    assert model[0].bias.grad.shape == (width,) and out.shape == (rows, 2)


def test_memory_between_the_layers_is_not_kept():
    """What is kept for backward of a pooled convolution: the map before the pool is not among it."""
    model = nn.Sequential(nn.Conv2d(5, 64, 3), nn.ReLU(), nn.MaxPool2d(2))
    out = model(minigrad.randn(8, 5, 40, 40))
    kept = [value.array if isinstance(value, Tensor) else value for value in out.node.kept.values()]
    largest = max(array.nbytes for array in kept if isinstance(array, np.ndarray))
    assert largest < 8 * 64 * 38 * 38 * 4 / 3


def random_network(seed):
    """A function of (images, parameters) that applies random operations, some to earlier results, some looked at."""
    random = np.random.default_rng(seed)
    plan = [str(random.choice(["conv", "relu", "pool", "norm", "add", "look", "again"])) for _ in range(10)]
    choices = [int(random.integers(0, 100)) for _ in plan]

    def function(x, w, scale, shift):
        results, value = [x], x
        for name, choice in zip(plan, choices, strict=True):
            earlier = results[choice % len(results)]
            if name == "conv":
                value = F.conv2d(value, w, padding=1)
            elif name == "relu":
                value = F.relu(value)
            elif name == "pool":
                value = F.max_pool2d(value, 3, 1, 1)
            elif name == "norm":
                value = F.batch_norm(value, None, None, scale, shift, True)
            elif name == "add":
                value = value + earlier if choice % 2 else earlier + value
            elif name == "look" and choice % 2:
                value.tolist()
            elif name == "again":
                value = earlier
            results.append(value)
        return value + 0 * x

    return function


@pytest.mark.parametrize("seed", range(40))
def test_random_networks(seed):
    function = random_network(seed)
    arguments = drawn((3, 4, 5, 6), (4, 4, 3, 3), (4,), (4,), dtype="float64", seed=seed)
    apart, apart_grads = gradients(function, arguments, 1.0)
    fused, fused_grads = gradients(Called(function), arguments, 1.0)
    assert fused.array.tobytes() == apart.array.tobytes()
    for mine, separate in zip(fused_grads, apart_grads, strict=True):
        assert (mine is None) == (separate is None)
        if mine is not None:
            assert np.abs(mine.array - separate.array).max() <= 1e-9 * max(1, np.abs(separate.array).max())
