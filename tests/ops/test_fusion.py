"""Operations that run in one pass: values and gradients of the separate ones, and nobody can tell when it happened."""

import itertools
import weakref
from concurrent.futures import ThreadPoolExecutor

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
ADDED = *IMAGES, (3, 6, 9, 8)
ROWS = (7, 5), (4, 5), (4,)
NORM = (4, 3, 5, 6), (3,), (3,), (4, 3, 5, 6)
MANY = (4, 32, 16, 18), (32, 32, 3, 3), (32,)  # which in float32 goes by Winograd's way
conv, relu, pool, linear = F.conv2d, F.relu, F.max_pool2d, F.linear


def normed(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, True)


CHAINS = [  # the primitive of the result where all runs in one pass, the function, the shapes of its arguments
    ("conv2d_relu", lambda x, w, b: relu(conv(x, w, b, padding=1)), IMAGES),
    ("conv2d_relu_max_pool2d", lambda x, w: pool(relu(conv(x, w, padding=1)), 3, 1), IMAGES[:2]),
    ("conv2d_relu_max_pool2d", lambda x, w, b: relu(pool(conv(x, w, b), 2)), IMAGES),
    ("conv2d_relu_max_pool2d", lambda x, w, b: pool(relu(conv(x, w, b)), 2), MANY),
    ("conv2d_max_pool2d", lambda x, w, b: pool(conv(x, w, b, padding=2, dilation=2), 3, 2, 1), IMAGES),
    ("conv2d_max_pool2d", lambda x, w, b: pool(conv(x, w, b, padding=6), 17, 1), IMAGES),  # positions of 16 bits
    ("conv2d_add", lambda x, w, b, r: conv(x, w, b, padding=1) + r, ADDED),
    ("conv2d_add_relu", lambda x, w, b, r: relu(r + conv(x, w, None, 1, 1)), ADDED),
    ("conv2d_add_relu", lambda x, w, b: relu(conv(x, w, b, padding=1) + x), MANY),
    ("linear_relu", lambda x, w, b: relu(linear(x, w, b)), ROWS),
    ("linear_relu", lambda x, w: relu(linear(x, w)), ROWS[:2]),
    ("batch_norm_relu", lambda x, w, b, r: relu(normed(x, w, b)), NORM),
    ("batch_norm_relu", lambda x, w, b, r: relu(normed(x, None, None) + x * r), NORM),
    ("batch_norm", lambda x, w, b, r: normed(x, w, b) + r, NORM),
]


def gradients(function, arguments, weights):
    for argument in arguments:
        argument.grad = None
    out = function(*arguments)
    (out * weights).sum().backward()
    return out, [argument.grad for argument in arguments]


def beside_separate(function, arguments, bound):
    """The same bits, in a graph and without one; gradients to a bound, with NaN in the same places."""
    with no_grad():
        weights = drawn(function(*arguments).shape, dtype=arguments[0].dtype, seed=4)[0].detach()
        free = Called(function)(*arguments)
    apart, apart_grads = gradients(function, arguments, weights)
    fused, fused_grads = gradients(Called(function), arguments, weights)
    assert free.is_leaf and not free.requires_grad
    np.testing.assert_array_equal(fused.array, apart.array)
    np.testing.assert_array_equal(free.array, apart.array)
    for mine, separate in zip(fused_grads, apart_grads, strict=True):
        assert (mine is None) == (separate is None)
        if mine is not None:
            finite = np.isfinite(separate.array) & np.isfinite(mine.array)
            largest = np.abs(separate.array[finite]).max(initial=1)
            assert np.abs(mine.array[finite] - separate.array[finite]).max(initial=0) <= bound * largest
            np.testing.assert_array_equal(np.isnan(mine.array), np.isnan(separate.array))
    return apart, fused


@pytest.mark.parametrize("name, function, shapes", CHAINS)
def test_chain(name, function, shapes):
    """Values, gradients to second order, NaN and infinity: nobody can tell it from the separate operations."""
    for dtype in ("float32", "float64"):
        apart, fused = beside_separate(function, drawn(*shapes, dtype=dtype), 64 * np.finfo(dtype).eps)
        assert names(fused)[0] == name and names(apart)[0] != name or name == "batch_norm"
    for value, argument in zip((np.nan, np.inf, -np.inf), itertools.cycle(range(len(shapes)))):  # noqa: B905
        arguments = drawn(*shapes)
        arguments[argument].array.reshape(-1)[1] = value
        beside_separate(function, arguments, np.inf)
    for frozen in range(len(shapes)):
        arguments = drawn(*shapes)
        arguments[frozen].requires_grad_(False)
        Called(function)(*arguments).sum().backward()
        assert arguments[frozen].grad is None
    if shapes is not MANY:
        arguments = drawn(*shapes, dtype="float64", seed=7)
        assert gradcheck(Called(function), arguments, directions=2)
        assert gradgradcheck(Called(function), arguments, directions=2)


def test_in_sequential():
    """A hook sees what it always saw; so does whoever looks at every result. Threads do not disturb each other."""
    row = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 5), nn.ReLU())
    inputs, seen = [drawn((2, 1, 8, 8), seed=seed)[0] for seed in range(4)], []
    out, *_ = wanted = [row(x) for x in inputs]
    assert names(out) == ["linear_relu", "reshape", "conv2d_relu_max_pool2d"]
    with ThreadPoolExecutor(4) as executor:
        found = [*executor.map(lambda x: {row(x).array.tobytes() for _ in range(20)}, inputs)]
    assert found == [{one.array.tobytes()} for one in wanted]
    handle = row[0].register_forward_hook(lambda module, arguments, out: seen.append(out.array.copy()))
    apart = row(inputs[0])
    handle.remove()
    assert "conv2d" in names(apart) and apart.array.tobytes() == out.array.tobytes()
    with detect_anomaly():
        assert "conv2d" in names(row(inputs[0]))


LOOKS = [lambda y: y.array, lambda y: y.node, repr, lambda y: y.register_hook(lambda g: None), lambda y: -y]


def test_whoever_looks_has_it_computed_once():
    """But shape, type and device are known without."""
    known = lambda y: (y.shape, y.dtype, y.device, y.ndim, y.requires_grad, y.dim())
    kept = []

    def function(look, x, w):
        y = conv(x, w)
        kept.append((look(y), waits(y)))
        return relu(y)

    for look in LOOKS:
        assert names(Called(function)(look, *drawn(*IMAGES[:2]))) == ["relu", "conv2d"] and not kept[-1][1]
    assert names(Called(function)(known, *drawn(*IMAGES[:2]))) == ["conv2d_relu"]
    assert kept[-1] == (((3, 6, 7, 6), np.float32, "cpu", 4, True, 4), True)


def test_what_changes_meanwhile_was_read_before():
    """An optimiser's step between a convolution and its relu: values of before, and backward refuses. Results that
    are kept until after the call are those of then."""
    x, w = drawn(*IMAGES[:2])
    optimizer, kept = optim.SGD([w], lr=1.0), []
    w.grad = Tensor(np.ones(w.shape, np.float32))
    wanted = conv(x, w).array.copy()

    def function(x, w):
        y = conv(x, w)
        optimizer.step()
        return relu(y)

    out = Called(function)(x, w)
    assert out.array.tobytes() == np.maximum(wanted, 0).tobytes()
    with pytest.raises(RuntimeError, match="weight was changed after it was used"):
        out.sum().backward()
    wanted = conv(x, w).array.copy()
    Called(lambda x, w: kept.extend((y := conv(x, w), z := relu(y))) or pool(z, 2))(x, w)
    w.array[...] = 0
    assert not any(map(waits, kept))
    assert [one.array.tobytes() for one in kept] == [wanted.tobytes(), np.maximum(wanted, 0).tobytes()]


def test_a_result_that_waits_may_get_other_data():
    def function(x, w):
        y = conv(x, w)
        y.data = minigrad.ones(2, 3)
        return relu(y - 0.5)

    assert Called(function)(*(tensor.detach() for tensor in drawn(*IMAGES[:2]))).tolist() == [[0.5] * 3] * 2


def test_nothing_is_kept_longer_than_needed():
    """The input of a result that was computed, the map before a pool; after an exception nothing waits."""
    x, w = (tensor.detach() for tensor in drawn(*IMAGES[:2]))
    x, kept = Tensor(x.array.copy()), []
    gone = weakref.ref(x.array)
    Called(lambda x: kept.append(conv(x, w)) or relu(kept[0]))(x)
    del x
    assert gone() is None
    out = nn.Sequential(nn.Conv2d(5, 64, 3), nn.ReLU(), nn.MaxPool2d(2))(minigrad.randn(8, 5, 40, 40))
    arrays = [value.array if isinstance(value, Tensor) else value for value in out.node.kept.values()]
    assert max(array.nbytes for array in arrays if isinstance(array, np.ndarray)) < 8 * 64 * 38 * 38 * 4 / 3
    with pytest.raises(ZeroDivisionError):
        Called(lambda x, w: kept.append(conv(x, w)) or 1 / 0)(*drawn(*IMAGES[:2]))
    assert not waits(kept[-1]) and type(conv(*drawn(*IMAGES[:2]))) is Tensor  # outside of a call again


def test_modes_of_the_moment_of_the_call():
    """Of no_grad, and of Winograd's way, though the relu comes after; statistics are updated then."""
    norm, seen = nn.BatchNorm2d(3), []
    out = Called(lambda x: (y := norm(x), seen.append(norm.running_mean.tolist()), relu(y))[-1])(*drawn(NORM[0]))
    assert names(out) == ["batch_norm_relu"] and seen[0] == norm.running_mean.tolist() != [0.0, 0.0, 0.0]
    arguments = drawn(*MANY)
    with minigrad.winograd(False):
        apart = relu(conv(*arguments))

    def function(*arguments):
        with no_grad():
            constant = conv(*arguments)
        varied = conv(*arguments)
        with minigrad.winograd(False):
            other = conv(*arguments)
        return relu(constant), relu(varied), relu(other)

    constant, varied, other = Called(function)(*arguments)
    assert not constant.requires_grad and varied.requires_grad
    assert other.array.tobytes() == apart.array.tobytes() != varied.array.tobytes()


def test_what_does_not_fit_is_computed_separately():
    """What broadcasts is added apart; there may be no rows or columns; rows of 16 bits are rectified at once."""
    x, w, b, _ = drawn(*NORM)
    (row,) = drawn((1, 3, 1, 1))
    assert names(Called(lambda x, w, b, r: normed(x, w, b) + r)(x, w, b, row)) == ["add", "batch_norm"]
    assert names(Called(lambda x, w, r: conv(x, w) + r)(x, *drawn((3, 3, 1, 1)), row)) == ["add", "conv2d"]
    for rows, width in ((4, 0), (0, 5)):
        model, x = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2)), minigrad.ones(rows, 3)
        out = model(x.requires_grad_())
        out.sum().backward()
        np.testing.assert_array_equal(x.grad.array, np.zeros((rows, 3)))
        assert model[0].bias.grad.shape == (width,) and out.shape == (rows, 2)
    for half in ("float16", "bfloat16"):
        arguments = [t.detach().to(half).requires_grad_() for t in drawn(*ROWS[:2])]
        apart, fused = beside_separate(lambda x, w: relu(linear(x, w)), arguments, 0)
        assert names(fused) == ["linear_relu"] and fused.dtype == arguments[0].grad.dtype == half


def test_a_residual_block_of_inference_is_one_pass_a_convolution(monkeypatch):
    block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
    norm, (x,) = nn.BatchNorm2d(4).eval(), drawn((2, 4, 6, 6))
    norm.running_mean.array[...], norm.running_var.array[...] = 0.5, 2.0
    block.eval()
    seen, run = [], conv2d.forward

    def forward(x, w, bias, relu, *rest):
        seen.append((relu, rest[-1] is not None))
        return run(x, w, bias, relu, *rest)

    with no_grad():
        expected = relu(norm(block(x)) + x)
        monkeypatch.setattr(conv2d, "forward", forward)
        found = Called(lambda x: relu(norm(block(x)) + x))(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert seen == [(True, False), (True, True)]
