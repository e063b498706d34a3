"""Losses and softmax where the tables of rows do not reach: broadcasting, kinks, infinities, misuse."""

import numpy as np
import pytest

from minigrad import Tensor, gradcheck, gradgradcheck, ops
from minigrad.core.tape import grad

NAN, INFINITY = float("nan"), float("inf")
POINTS = [-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 1e30, -1e30, INFINITY, -INFINITY, NAN]
SHARES = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1e-20, 1e-20, 1 - 2**-24, 1 - 2**-24, 0.3]
TARGETS = [0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 0.0, 1.0, 0.0, 1.0, 0.9]
LOGITS = [0.0, -0.0, 30.0, -30.0, 200.0, -200.0, 1e4, -1e4, INFINITY, -INFINITY, NAN]
LOGITS_TARGETS = [0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0]


def leaf(values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


def check_beside_torch(name, input, target, orders=1, rtol=1e-6, **options):
    """The losses, and the gradients of both arguments, in float32 as training has them."""
    torch = pytest.importorskip("torch")
    ours = [leaf(values, np.float32) for values in (input, target)]
    theirs = [torch.tensor(np.array(values, np.float32), requires_grad=True) for values in (input, target)]
    to_torch = {
        key: torch.tensor(value.array) if isinstance(value, Tensor) else value for key, value in options.items()
    }
    found = getattr(ops, name)(*ours, reduction="none", **options)
    wanted = getattr(torch.nn.functional, name)(*theirs, reduction="none", **to_torch)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=rtol, atol=1e-7)
    for order in range(orders):
        found = grad(ops.sum(found), ours[: 2 - order], create_graph=True)
        wanted = torch.autograd.grad(wanted.sum(), theirs[: 2 - order], create_graph=True)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=rtol, atol=1e-7)
        found, wanted = found[0], wanted[0]


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, options", [
    ("mse_loss", {}),
    ("l1_loss", {}),
    ("smooth_l1_loss", {}),
    ("smooth_l1_loss", {"beta": 0.5}),
    ("smooth_l1_loss", {"beta": 2}),
    ("smooth_l1_loss", {"beta": 0}),
    ("huber_loss", {}),
    ("huber_loss", {"delta": 0.5}),
])  # fmt: skip
def test_kinks_and_infinities_like_pytorch(name, options):
    check_beside_torch(name, POINTS, np.zeros(len(POINTS)), **options)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4,), (3, 4)), ((), (2, 3)), ((2, 1, 3), (4, 1))])
def test_shapes_that_broadcast_make_a_warning(name, shapes):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape) for shape in shapes)
    ours, theirs = [leaf(x), leaf(y)], [torch.tensor(a, requires_grad=True) for a in (x, y)]
    for reduction in ("mean", "sum", "none"):
        with pytest.warns(UserWarning, match=f"^{name}: input has shape .* they broadcast to"):
            found = getattr(ops, name)(*ours, reduction=reduction)
        with pytest.warns(UserWarning, match="target size"):
            wanted = getattr(torch.nn.functional, name)(*theirs, reduction=reduction)
        np.testing.assert_allclose(found.array, wanted.detach().numpy(), rtol=1e-12)
        wanted = torch.autograd.grad(wanted.sum(), theirs)
        for a, b in zip(grad(ops.sum(found), ours), wanted, strict=True):
            np.testing.assert_allclose(a.array, b.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "cross_entropy", "nll_loss", "kl_div"])
def test_options_are_given_by_name(name):
    """By position they would stand where PyTorch has its old size_average and reduce."""
    with pytest.raises(TypeError, match="positional arguments"):
        getattr(ops, name)(leaf([[0.5]]), Tensor([0]), None, "sum")


def test_cosine_of_short_vectors():
    """Below eps the length is a constant, and the cosine linear."""
    zero, x = leaf(np.zeros((2, 3))), leaf(np.random.default_rng(0).standard_normal((2, 3)))
    cosine = lambda a, b: ops.cosine_similarity(a, b, eps=0.5)
    assert cosine(zero, x).tolist() == [0, 0]
    assert gradcheck(cosine, [zero, x]) and gradgradcheck(cosine, [zero, x])
    wanted = x.array / np.linalg.norm(x.array, axis=1, keepdims=True) / 0.5
    np.testing.assert_allclose(grad(ops.sum(cosine(zero, x)), zero)[0].array, wanted, rtol=1e-12)
    assert gradcheck(lambda a, b: ops.cosine_similarity(a, b, eps=100), [x, leaf(x.array + 1)])


# ---- probabilities ---------------------------------------------------------------------------------------------------


def test_binary_cross_entropy_of_the_sure_like_pytorch():
    check_beside_torch("binary_cross_entropy", SHARES, TARGETS)


@pytest.mark.parametrize("pos_weight", [None, 3.0])
def test_binary_cross_entropy_of_large_logits_like_pytorch(pos_weight):
    options = {} if pos_weight is None else {"pos_weight": Tensor(np.float32(pos_weight))}
    finite = slice(None) if pos_weight is None else slice(-3)
    name = "binary_cross_entropy_with_logits"
    check_beside_torch(name, LOGITS[finite], LOGITS_TARGETS[finite], orders=2, **options)


def test_logits_keep_their_digits():
    x = leaf([-40.0, 40.0, -15.0, 15.0], np.float32)
    loss = ops.binary_cross_entropy_with_logits(x, Tensor(np.array([0, 1, 0, 1], np.float32)), reduction="none")
    small = np.exp(np.array([-40, -40, -15, -15.0]))
    np.testing.assert_allclose(loss.array, np.log1p(small), rtol=1e-6)
    gradient = grad(ops.sum(loss), x)[0].array
    np.testing.assert_allclose(gradient[::2], small[::2] / (1 + small[::2]), rtol=1e-6)


@pytest.mark.parametrize("wrong", [1.0000001, -1e-9, NAN, INFINITY])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_no_probability_is_refused(wrong, place):
    arguments = [[0.2, 0.5, 0.1], [0.0, 1.0, 0.5]]
    arguments[place][1] = wrong
    with pytest.raises(ValueError, match=f"{('input', 'target')[place]} has elements out of range"):
        ops.binary_cross_entropy(*map(leaf, arguments))


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
def test_divergence_at_0_like_pytorch(log_target):
    input, target = [0.0, -1.0, 1.0, -INFINITY, 0.5, 2.0], [0.0, 1.0, 0.5, 0.0, 0.0, 2.0]
    check_beside_torch("kl_div", input, target, log_target=log_target)


# ---- classes ---------------------------------------------------------------------------------------------------------

SCORES = [[0.0, -INFINITY, 1.0], [1e4, 0.0, -1e4], [INFINITY, 0.0, 0.0], [NAN, 0.0, 0.0], [3e38, -3e38, 0.0]]


@pytest.mark.parametrize("smooth", [0.0, 0.1])
@pytest.mark.parametrize("target", [[0, 1, 0, 2, 1], [2, 2, 1, 2, -100]])
def test_cross_entropy_of_large_scores_like_pytorch(smooth, target):
    torch = pytest.importorskip("torch")
    x, t = leaf(SCORES, np.float32), torch.tensor(SCORES, requires_grad=True)
    found = ops.cross_entropy(x, Tensor(np.array(target)), reduction="none", label_smoothing=smooth)
    options = {"reduction": "none", "label_smoothing": smooth}
    wanted = torch.nn.functional.cross_entropy(t, torch.tensor(target), **options)
    np.testing.assert_allclose(found.array, wanted.detach().numpy(), rtol=1e-6)
    wanted = torch.autograd.grad(wanted.sum(), t)[0].numpy()
    for create_graph in (False, True):
        np.testing.assert_allclose(grad(ops.sum(found), x, None, True, create_graph)[0].array, wanted, atol=1e-7)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("target", [[0, 2, -1, 1], [2, -1, -1, -1], [-1, -1, -1, -1]])
@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_reduced_losses_are_those_of_the_rows(reduction, target, place):
    """Of the rows that count; the mean of none is NaN, its gradient 0."""
    scores = np.random.default_rng(0).standard_normal((4, 3))
    scores[[i for i, label in enumerate(target) if label < 0]] = NAN
    labels, x, y = Tensor(np.array(target)).to(place), *(leaf(scores).to(place).detach() for _ in range(2))
    x.requires_grad = y.requires_grad = True
    found = ops.cross_entropy(x, labels, ignore_index=-1, reduction=reduction)
    wanted = ops.sum(ops.cross_entropy(y, labels, ignore_index=-1, reduction="none"))
    if reduction == "mean":
        wanted = wanted / float(np.sum(np.array(target) != -1) or NAN)
    np.testing.assert_allclose(found.item(), wanted.item(), rtol=1e-14)
    for create_graph in (False, True):
        (gradient,) = grad(found, x, None, True, create_graph)
        same = grad(wanted, y, None, True)[0].numpy() if set(target) != {-1} else np.zeros((4, 3))
        np.testing.assert_allclose(gradient.detach().numpy(), same, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_one_class_as_a_vector(name, reduction):
    """PyTorch takes it too, but has no gradient then."""
    x = leaf([0.5, -1.0, 2.0])
    losses = [getattr(ops, name)(x, Tensor(target), reduction=reduction) for target in (np.array(1), np.array([1]))]
    assert losses[0].shape == losses[1].shape == () and losses[0].item() == losses[1].item()
    np.testing.assert_array_equal(*(grad(loss, x)[0].array for loss in losses))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_large_scores_like_pytorch(name):
    torch = pytest.importorskip("torch")
    x, t = leaf([*SCORES, [-INFINITY] * 3], np.float32), torch.tensor([*SCORES, [-INFINITY] * 3], requires_grad=True)
    found, wanted = getattr(ops, name)(x, 1), getattr(torch, name)(t, 1)
    np.testing.assert_allclose(found.array, wanted.detach().numpy(), rtol=1e-6)
    g = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    wanted = torch.autograd.grad(wanted, t, torch.tensor(g))[0].numpy()
    for create_graph in (False, True):
        found_gradient = grad(found, x, Tensor(g), True, create_graph)[0].array
        np.testing.assert_allclose(found_gradient, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_in_another_type(name, dtype):
    """It computes in that type; the gradient arrives in that of the input."""
    x = leaf(np.random.default_rng(0).standard_normal((3, 4)), np.float32)
    out = getattr(x, name)(1, dtype=dtype)
    assert out.dtype == dtype
    (gradient,) = grad(ops.sum(out * out), x)
    assert gradient.dtype == np.float32
    wide = leaf(x.array.astype(dtype), dtype)
    same = getattr(ops, name)(wide, 1)
    np.testing.assert_array_equal(out.array, same.array)
    np.testing.assert_allclose(gradient.array, grad(ops.sum(same * same), wide)[0].array, rtol=1e-6, atol=1e-7)
