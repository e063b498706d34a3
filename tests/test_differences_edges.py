"""The page of differences from PyTorch: what only we take, and other values; each row is shown by a function."""

import math

import numpy as np
import pytest

import minigrad
from minigrad import nn, ops, optim
from minigrad.check import gradgradcheck
from tests.difference_rows import EDGES, Shown, gives, refuses, sgd, slopes, tensor, whole

shows = Shown(EDGES)
NAN, INFINITY = math.nan, math.inf


# ---- taken here ------------------------------------------------------------------------------------------------------


@shows("flags such as")
def flags_may_be_0_and_1():
    gives(ops.sum(tensor([[1, 2]]), 1, 1), [[3]])
    gives(ops.amax(tensor([[1, 2]]), 1, keepdim=0), [2])


@shows("`max(x, None)`")
def none_names_all_dimensions():
    x = tensor([[1.0, 2.0]])
    gives(ops.max(x, None), 2)
    gives(ops.prod(x, None), 2)
    gives(ops.logsumexp(x, ()), 2 + math.log1p(math.exp(-1)))


@shows("`clamp`")
def limits_may_differ_in_kind():
    gives(ops.clamp(tensor([-1.0, 1.0]), 0, tensor([0.5])), [0, 0.5])


@shows("`linear` with a weight")
def a_vector_of_weights_has_a_bias():
    gives(ops.linear(tensor([[1, 2]]), tensor([1, 1]), tensor(0.5)), [3.5])


@shows("a vector of scores")
def a_vector_of_scores_has_a_gradient():
    gives(slopes(lambda x: ops.nll_loss(x, whole([0])), [1, 2])[0], [-1, 0])
    gives(slopes(lambda x: ops.cross_entropy(x, whole([0])), [1, 1])[0], [-0.5, 0.5])


@shows("`scatter`, `scatter_add`")
def what_is_too_much_gets_nothing():
    for op, kept in ((ops.scatter, 0), (ops.scatter_add, 1)):
        dx, dsrc = slopes(lambda x, src, op=op: op(x, 0, whole([1]), src), [1, 2], [3, 4])
        gives(dx, [1, kept])
        gives(dsrc, [1, 0])


@shows("`group_norm`")
def a_bias_needs_no_weight():
    gives(slopes(lambda bias: ops.group_norm(tensor([[1, 2]]), 1, bias=bias), [0, 0])[0], [1, 1])


@shows("an empty result")
def nothing_gives_zeros():
    gives(slopes(lambda x: ops.adaptive_avg_pool2d(x, (0, 1)), [[[[1]]]])[0], [[[[0]]]])


@shows("bools in `topk`")
def more_types_are_taken():
    gives(ops.topk(tensor([False, True], bool), 1).values, [True])
    gives(ops.pad(tensor([[[True, False]]], bool), (1, 0), mode="reflect"), [[[False, True, False]]])
    columns = ops.unfold(whole([[[[1, 2], [3, 4]]]]), 2)
    gives(columns, [[[1], [2], [3], [4]]])
    gives(ops.fold(columns, (2, 2), 2), [[[[1, 2], [3, 4]]]])


@shows("reflecting or replicating")
def nothing_may_be_left():
    for mode in ("reflect", "replicate"):
        assert ops.pad(tensor([[[1.0, 2.0]]]), (-1, -1), mode=mode).shape == (1, 1, 0)


@shows("integers as `betas`")
def betas_may_be_integers():
    assert optim.Adam([tensor([1.0])], betas=(0, 0)).param_groups[0]["betas"] == (0, 0)


@shows("a plain dictionary")
def names_come_in_any_dictionary():
    assert [name for name, _ in nn.Sequential({"a": nn.ReLU()}).named_children()] == ["a"]


# ---- other values, gradients and types -------------------------------------------------------------------------------


@shows("rows that `ignore_index`")
def ignored_rows_have_no_gradient():
    gives(slopes(lambda x: ops.cross_entropy(x, whole([0, -100])), [[1, 1], [NAN, 1]])[0], [[-0.5, 0.5], [0, 0]])


@shows("`elu` at NaN")
def elu_of_nan():
    gives(slopes(ops.elu, [NAN])[0], [NAN])


@shows("`gelu(inf)`")
def gelu_of_infinity():
    gives(ops.gelu(tensor([INFINITY] * 64, "float32")), [INFINITY] * 64)


@shows("`binary_cross_entropy_with_logits`")
def logits_keep_their_digits():
    loss = ops.binary_cross_entropy_with_logits
    gives(loss(tensor([-30], "float32"), tensor([0], "float32")), math.log1p(math.exp(-30)))
    gives(loss(tensor([-INFINITY]), tensor([1])), INFINITY)
    assert loss(tensor([1.0]), tensor([1], "float32")).dtype == np.float64


@shows("`huber_loss` of mixed types")
def huber_loss_promotes():
    assert ops.huber_loss(tensor([1], "float32"), tensor([3])).dtype == np.float64
    assert ops.huber_loss(whole([1]), tensor([3])).dtype == np.float64


@shows("`cosine_similarity`")
def short_vectors_count_as_eps_long():
    dx, dy = slopes(lambda x, y: ops.cosine_similarity(x, y, 0, eps=5.0), [1, 0], [1, 2])
    gives(dx, [1 / 25, 2 / 25])
    gives(dy, [1 / 25, 0])


@shows("`var`, `std`")
def no_dimensions_are_all():
    gives(slopes(lambda x: ops.var(x, ()), [0, 3, 6])[0], [-3, 0, 3])
    gives(slopes(lambda x: ops.std(x, ()), [0, 3, 6])[0], [-0.5, 0, 0.5])


@shows("second derivative of `norm`")
def norm_at_zeros():
    gives(slopes(ops.norm, [0, 0], order=2)[0], [0, 0])


@shows("third derivatives of")
def third_derivatives_of_norms_are_right():
    draws = np.random.default_rng(0)
    image, weights = draws.standard_normal((3, 2, 2, 2)), tensor(draws.standard_normal((3, 2, 2, 2)))
    settings = {"batch_norm": (None, None, None, None, True), "layer_norm": ((2, 2, 2),), "instance_norm": ()}
    for name, setting in settings.items():

        @minigrad.enable_grad()  # finite differences are taken without
        def slope(x):
            out = getattr(ops, name)(x, *setting)  # noqa: B023
            return minigrad.grad((out * weights).sum(), x, create_graph=True)[0]

        assert gradgradcheck(slope, [minigrad.tensor(image, requires_grad=True)])


@shows("second derivatives of")
def kinks_of_the_second_order():
    zero = tensor([0.0])
    gives(slopes(lambda x: ops.huber_loss(x, zero), [1], order=2)[0], [1])
    gives(slopes(lambda x: ops.smooth_l1_loss(x, zero), [1], order=2)[0], [1])
    gives(slopes(lambda x: ops.softplus(x, threshold=0), [0], order=2)[0], [0.25])


@shows("a non-leaf")
def parameters_are_leaves():
    refuses(RuntimeError, "wanted a leaf", lambda: sgd([tensor([1.0]).requires_grad_() * 2]))


@shows("the largest or smallest")
def nothing_has_no_extreme():
    x = tensor([])
    refuses(ValueError, "no extreme", lambda: ops.max(x), lambda: ops.max(x, 0), lambda: ops.amin(x, 0))
    refuses(ValueError, "no extreme", lambda: ops.argmax(x))


@shows("`instance_norm`")
def statistics_of_nothing():
    mean, var = tensor([1.0]), tensor([1.0])
    ops.instance_norm(tensor(np.zeros((0, 1, 4, 4))), mean, var, use_input_stats=True)
    gives(mean, [1])


@shows("`interpolate` by `nearest`")
def nearest_pixels():
    ramp = tensor(np.arange(49.0))[None, None]
    assert ops.interpolate(ramp, size=161).tolist() == ops.interpolate(ramp.float(), size=161).tolist()
    gives(ops.interpolate(ramp[:, :, :7], scale_factor=1.1), [[[0, 1, 2, 3, 4, 5, 6]]])


@shows("`Sequential`")
def names_stay():
    layers = nn.Sequential({"a": nn.ReLU(), "b": nn.ReLU()})
    del layers[0]
    assert [name for name, _ in layers.named_children()] == ["b"]


@shows("warnings")
def nobody_is_warned():
    ops.kl_div(tensor([1.0]), tensor([1.0]))
    nn.InstanceNorm2d(3)(minigrad.ones(1, 4, 2, 2))
    optim.lr_scheduler.StepLR(sgd(), 1).step()


@pytest.mark.parametrize("row", shows.rows)
def test_difference(row):
    shows.show(row)


def test_every_difference_is_on_the_page():
    shows.check()
