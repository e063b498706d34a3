"""PyTorch's side of the page of differences where only we take something, or values differ; what died is named here."""

import math
from collections import OrderedDict

import numpy as np
import pytest

from tests.difference_rows import EDGES, Shown, gives, refuses, warns

torch = pytest.importorskip("torch")
functional = torch.nn.functional
shows = Shown(EDGES)
NAN, INFINITY = math.nan, math.inf


def tensor(values, dtype="float64"):
    return torch.tensor(np.array(values, dtype))


def whole(values):
    return tensor(values, "int64")


def slopes(function, *values, order=1):
    """The gradients of the sum of function(*values), or of the sum of the first of them."""
    leaves = [tensor(value).requires_grad_() for value in values]
    out = function(*leaves).sum()
    if order == 2:
        out = torch.autograd.grad(out, leaves, create_graph=True)[0].sum()
    return torch.autograd.grad(out, leaves)


# ---- taken here ------------------------------------------------------------------------------------------------------


@shows("flags such as")
def flags_are_bools():
    x = tensor([[1, 2]])
    refuses(TypeError, "must be bool", lambda: torch.sum(x, 1, 1), lambda: torch.amax(x, 1, keepdim=0))


@shows("`max(x, None)`")
def none_names_nothing():
    x = tensor([[1.0, 2.0]])
    refuses(TypeError, "invalid combination", lambda: torch.max(x, None), lambda: torch.prod(x, None))
    refuses(RuntimeError, "shape", lambda: torch.logsumexp(x, ()))


@shows("`clamp`")
def limits_are_of_one_kind():
    refuses(TypeError, "invalid combination", lambda: torch.clamp(tensor([1.0]), 0, tensor([0.5])))


@shows("`linear` with a weight")
def a_vector_of_weights_has_no_bias():
    refuses(RuntimeError, "1-D tensor", lambda: functional.linear(tensor([[1, 2]]), tensor([1, 1]), tensor(0.5)))


@shows("a vector of scores")
def a_vector_of_scores_has_no_gradient():
    gives(functional.nll_loss(tensor([1.0, 2.0]), whole([0])), -1)
    for loss in (functional.nll_loss, functional.cross_entropy):
        refuses(RuntimeError, "mismatch", lambda loss=loss: slopes(lambda x: loss(x, whole([0])), [1, 2]))


@shows("`scatter`, `scatter_add`")
def what_is_too_much_fails():
    for op in (torch.scatter, torch.scatter_add):
        scatter = lambda x, src, op=op: op(x, 0, whole([1]), src)
        assert scatter(tensor([1.0, 2.0]), tensor([3.0, 4.0])).shape == (2,)
        refuses(RuntimeError, "invalid gradient", lambda scatter=scatter: slopes(scatter, [1, 2], [3, 4]))


@shows("`group_norm`")
def a_bias_needs_a_weight():
    norm = lambda bias: functional.group_norm(tensor([[1, 2]]), 1, bias=bias)
    assert norm(tensor([0, 0])).shape == (1, 2)
    refuses(RuntimeError, "does not have a device", lambda: slopes(norm, [0, 0]))


@shows("an empty result")
def nothing_has_no_gradient():
    refuses(
        RuntimeError, "non-zero size", lambda: slopes(lambda x: functional.adaptive_avg_pool2d(x, (0, 1)), [[[[1]]]])
    )


@shows("bools in `topk`")
def fewer_types_are_taken():
    refuses(RuntimeError, "bool", lambda: torch.topk(tensor([False, True], bool), 1))
    for call in (
        lambda: functional.pad(tensor([[[True, False]]], bool), (1, 0), mode="reflect"),
        lambda: functional.unfold(whole([[[[1, 2], [3, 4]]]]), 2),
        lambda: functional.fold(whole([[[1], [2], [3], [4]]]), (2, 2), 2),
    ):
        refuses(NotImplementedError, "not implemented for", call)


@shows("reflecting or replicating")
def something_must_be_left():
    for mode in ("reflect", "replicate"):
        x = tensor([[[1.0, 2.0]]])
        refuses(RuntimeError, "too small", lambda mode=mode, x=x: functional.pad(x, (-1, -1), mode=mode))


@shows("integers as `betas`")
def betas_are_floats():
    refuses(ValueError, "both floats", lambda: torch.optim.Adam([tensor([1.0])], betas=(0, 0)))


@shows("a plain dictionary")
def names_come_in_an_ordered_dictionary():
    refuses(TypeError, "dict is not a Module", lambda: torch.nn.Sequential({"a": torch.nn.ReLU()}))


# ---- other values, gradients and types -------------------------------------------------------------------------------


@shows("rows that `ignore_index`")
def ignored_rows_have_a_gradient():
    (dx,) = slopes(lambda x: functional.cross_entropy(x, whole([0, -100])), [[1, 1], [NAN, 1]])
    gives(dx, [[-0.5, 0.5], [NAN, NAN]])


@shows("`elu` at NaN")
def elu_of_nan():
    gives(slopes(functional.elu, [NAN])[0], [1])


@shows("`gelu(inf)`")
def gelu_of_infinity():
    wide = "AVX512" in torch.backends.cpu.get_cpu_capability()
    gives(functional.gelu(tensor([INFINITY] * 64, "float32")), [NAN if wide else INFINITY] * 64)


@shows("`binary_cross_entropy_with_logits`")
def logits_lose_their_digits():
    loss = functional.binary_cross_entropy_with_logits
    gives(loss(tensor([-30], "float32"), tensor([0], "float32")), 0)
    gives(loss(tensor([-INFINITY]), tensor([1])), NAN)
    assert loss(tensor([1.0]), tensor([1], "float32")).dtype == torch.float32


@shows("`huber_loss` of mixed types")
def huber_loss_does_not_promote():
    assert functional.huber_loss(tensor([1], "float32"), tensor([3])).dtype == torch.float32
    refuses(RuntimeError, "can't be cast", lambda: functional.huber_loss(whole([1]), tensor([3])))


@shows("`cosine_similarity`")
def short_vectors_have_another_gradient():
    dx, _ = slopes(lambda x, y: functional.cosine_similarity(x, y, 0, eps=5.0), [1, 0], [1, 2])
    gives(dx, [1 / 25 - 1 / 125, 2 / 25])


@shows("`var`, `std`")
def no_dimensions_have_infinite_gradients():
    gives(slopes(lambda x: torch.var(x, ()), [0, 2, 6])[0], [-INFINITY, -INFINITY, INFINITY])
    gives(slopes(lambda x: torch.std(x, ()), [0, 2, 6])[0], [-INFINITY, -INFINITY, INFINITY])


@shows("second derivative of `norm`")
def norm_at_zeros():
    gives(slopes(torch.norm, [0, 0], order=2)[0], [NAN, NAN])


@shows("third derivatives of")
def third_derivatives_of_norms_are_not_those_of_the_second():
    draws = np.random.default_rng(0)
    image, weights, u, v, d = (tensor(draws.standard_normal((3, 2, 2, 2))) for _ in range(5))
    settings = {"batch_norm": (None, None, None, None, True), "layer_norm": ((2, 2, 2),), "instance_norm": ()}
    for name, setting in settings.items():

        def second(x):
            out = getattr(functional, name)(x, *setting)  # noqa: B023
            (slope,) = torch.autograd.grad((out * weights).sum(), x, create_graph=True)
            return torch.autograd.grad((slope * u).sum(), x, create_graph=True)[0]

        x, steps = image.clone().requires_grad_(), [image + e * d for e in (1e-5, -1e-5)]
        third = torch.autograd.grad((second(x) * v).sum(), x)[0]
        ahead, behind = (second(step.requires_grad_()) for step in steps)
        difference = ((ahead - behind) * v).sum() / 2e-5
        assert abs((third * d).sum() - difference) > 0.01 * abs(difference), name


@shows("second derivatives of")
def kinks_of_the_second_order():
    zero = tensor([0.0])
    gives(slopes(lambda x: functional.huber_loss(x, zero), [1], order=2)[0], [0])
    gives(slopes(lambda x: functional.smooth_l1_loss(x, zero), [1], order=2)[0], [0])
    gives(slopes(lambda x: functional.softplus(x, threshold=0), [0], order=2)[0], [0])


@shows("a non-leaf")
def parameters_are_leaves():
    refuses(ValueError, "non-leaf", lambda: torch.optim.SGD([tensor([1.0]).requires_grad_() * 2]))


@shows("the largest or smallest")
def nothing_has_no_extreme():
    x = tensor([])
    refuses(IndexError, "Expected reduction dim", lambda: torch.max(x, 0), lambda: torch.amin(x, 0))
    refuses(IndexError, "Expected reduction dim", lambda: torch.argmax(x))
    refuses(RuntimeError, "Expected reduction dim", lambda: torch.max(x), lambda: torch.amin(x))


@shows("`instance_norm`")
def statistics_of_nothing():
    mean, var = tensor([1.0]), tensor([1.0])
    functional.instance_norm(tensor(np.zeros((0, 1, 4, 4))), mean, var, use_input_stats=True)
    gives(mean, [NAN])


@shows("`interpolate` by `nearest`")
def nearest_pixels():
    ramp = tensor(np.arange(49.0))[None, None]
    different = functional.interpolate(ramp, size=161) != functional.interpolate(ramp.float(), size=161)
    assert torch.nonzero(different)[:, 2].tolist() == [23, 46, 92]
    row = ramp[:, :, :7]
    gives(functional.interpolate(row, scale_factor=1.1), [[[0, 0, 1, 2, 3, 4, 5]]])
    gives(functional.interpolate(row[None], scale_factor=(1.0, 1.1)), [[[[0, 1, 2, 3, 4, 5, 6]]]])


@shows("`Sequential`")
def names_become_numbers():
    layers = torch.nn.Sequential(OrderedDict(a=torch.nn.ReLU(), b=torch.nn.ReLU()))
    del layers[0]
    assert [name for name, _ in layers.named_children()] == ["0"]


@shows("warnings")
def everybody_is_warned():
    warns("batchmean", lambda: functional.kl_div(tensor([1.0]), tensor([1.0])))
    warns("num_features", lambda: torch.nn.InstanceNorm2d(3)(torch.ones(1, 4, 2, 2)))
    optimizer = torch.optim.SGD([tensor([1.0])], lr=0.1)
    warns("before `optimizer.step()`", torch.optim.lr_scheduler.StepLR(optimizer, 1).step)


@pytest.mark.parametrize("row", shows.rows)
def test_difference_in_pytorch(row):
    shows.show(row)


def test_every_difference_is_on_the_page():
    shows.check()
