"""The page of differences from PyTorch: what only PyTorch takes; every row is shown by a function of the same words."""

import math

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, ops, optim
from tests.difference_rows import REFUSED, Shown, gives, refuses, sgd, tensor, whole

shows = Shown(REFUSED)


@shows("numbers in Tensors")
def numbers_in_tensors_are_taken_as_factors():
    x, half = tensor([-1.0]), tensor(0.5)
    gives(ops.add(x, x, alpha=half), [-1.5])
    gives(ops.addmm(x, x[None], x[None], beta=half, alpha=half), [[0]])
    refuses(TypeError, "wanted a number", lambda: ops.leaky_relu(x, half), lambda: ops.huber_loss(x, x, delta=half))


@shows("`label_smoothing`, rates")
def numbers_are_finite():
    refuses(ValueError, "nan, wanted", lambda: ops.cross_entropy(tensor([1.0]), whole(0), label_smoothing=math.nan))
    refuses(ValueError, "wanted a finite number", lambda: sgd(lr=math.inf), lambda: sgd(lr=math.nan))


@shows("options of schedules")
def schedules_check_their_options():
    schedules = optim.lr_scheduler
    refuses(ValueError, "milestones is -1", lambda: schedules.MultiStepLR(sgd(), [-1]))
    refuses(TypeError, "milestones is 1.5", lambda: schedules.MultiStepLR(sgd(), [1.5]))
    refuses(ValueError, "factor is 0", lambda: schedules.ConstantLR(sgd(), factor=0))
    refuses(ValueError, "total_iters is 0", lambda: schedules.ConstantLR(sgd(), total_iters=0))
    refuses(ValueError, "factor is -1", lambda: schedules.ReduceLROnPlateau(sgd(), factor=-1))


@shows("flags of optimisers")
def flags_of_optimisers_are_flags():
    refuses(TypeError, "wanted True or False", lambda: sgd(maximize="yes"), lambda: sgd(nesterov=1, momentum=0.9))


@shows("parameters")
def parameters_have_an_order():
    x = tensor([1.0])
    refuses(ValueError, "is there twice", lambda: sgd([x, x]))
    refuses(TypeError, "params is a set", lambda: sgd({x}))


@shows("keys")
def keys_are_integers_and_bools():
    x = tensor([1.0, 2.0])
    refuses(IndexError, "wanted integers or bools", lambda: x[[0.0]], lambda: x[tensor([1, 0], "uint8")])
    refuses(IndexError, "one Ellipsis", lambda: x[..., ...])


@shows("a list of lists")
def a_list_of_lists_is_an_array():
    gives(tensor([[1, 2], [3, 4]])[[[0, 1], [1, 0]]], [[[1, 2], [3, 4]], [[3, 4], [1, 2]]])


@shows("indices")
def indices_are_checked():
    empty, x = minigrad.zeros(0, 3), tensor([1.0, 2.0])
    refuses(IndexError, "5", lambda: empty[:, whole([5])], lambda: ops.take_along_dim(x, whole([5]), 0))


@shows("fractions for integers")
def integers_take_integers():
    x = whole([[1]])
    refuses(TypeError, "beta is 1.5", lambda: ops.addmm(x, x, x, beta=1.5))
    refuses(ValueError, "value is 1.5", lambda: ops.pad(x, (1, 1), value=1.5))


@shows("powers of integers")
def integers_have_few_powers():
    refuses(TypeError, "pow", lambda: whole([2]) ** whole([-1]), lambda: ops.pow(tensor([True], bool), True))


@shows("the condition of `where`")
def conditions_are_bools():
    refuses(TypeError, "wanted bool", lambda: ops.where(tensor([1], "uint8"), 1.0, tensor([2.0])))


@shows("`l1_loss` of two integer")
def losses_want_floating_numbers():
    refuses(TypeError, "l1_loss: input", lambda: ops.l1_loss(whole([1]), whole([2]), reduction="sum"))


@shows("scores without classes")
def there_is_a_class():
    refuses(ValueError, "at least one class", lambda: ops.cross_entropy(tensor([[]])[:0], whole([])))


@shows("`linear` with a bias")
def a_bias_is_a_vector():
    refuses(ValueError, "linear: bias", lambda: ops.linear(tensor([[1.0]]), tensor([[1.0]]), tensor([[1.0]])))


@shows("`tensordot(dims=True)`")
def a_bool_counts_nothing():
    refuses(TypeError, "dims is True", lambda: ops.tensordot(tensor([1.0]), tensor([1.0]), dims=True))


@shows("`cat` of vectors")
def cat_checks_its_dimension():
    refuses(IndexError, "cat: dim is 1", lambda: ops.cat([tensor([]), tensor([])], 1))


@shows("`scatter(reduce=)`")
def some_options_are_not_there():
    x, index = tensor([1.0]), whole([0])
    refuses(TypeError, "reduce", lambda: ops.scatter(x, 0, index, x, reduce="add"))
    refuses(TypeError, "sparse_grad", lambda: ops.gather(x, 0, index, sparse_grad=True))


@shows("images without channels")
def images_have_channels():
    refuses(ValueError, "conv2d", lambda: ops.conv2d(minigrad.ones(1, 0, 4, 4), minigrad.ones(2, 0, 2, 2)))


@shows("`output_padding`")
def output_padding_is_checked():
    x, weight = minigrad.ones(0, 1, 4, 4), minigrad.ones(1, 1, 2, 2)
    refuses(ValueError, "output_padding", lambda: ops.conv_transpose2d(x, weight, output_padding=3))


@shows("`max_pool2d` windows")
def windows_cover_pixels():
    x = minigrad.ones(1, 1, 2, 2)
    refuses(ValueError, "covers no element", lambda: ops.max_pool2d(x, 2, stride=1, padding=1, dilation=3))


@shows("running statistics")
def statistics_are_written():
    frozen, x = np.ones(1, np.float32), minigrad.ones(2, 1, 2, 2)
    frozen.flags.writeable = False
    refuses(RuntimeError, "read-only", lambda: ops.batch_norm(x, Tensor(frozen), minigrad.ones(1), training=True))


@shows("`dropout2d`")
def channels_are_dropped_from_images():
    refuses(ValueError, "dropout2d", lambda: ops.dropout2d(minigrad.ones(2, 3)))


@shows("`Upsample`")
def upsample_has_one_aim():
    refuses(ValueError, "wanted one of them", nn.Upsample, lambda: nn.Upsample(size=2, scale_factor=2))


class Owner(nn.Module):
    part = None


@shows("a Module assigned")
def parts_are_not_hidden():
    refuses(ValueError, "the name 'part' is an attribute already", lambda: setattr(Owner(), "part", nn.ReLU()))


@shows("`ParameterList`")
def parameters_are_tensors():
    refuses(TypeError, "wanted a Tensor", lambda: nn.ParameterList([1]))


@shows("`trunc_normal_`")
def a_range_holds_something():
    x = minigrad.ones(3)
    refuses(ValueError, "too far", lambda: nn.init.trunc_normal_(x, a=5, b=6))
    refuses(ValueError, "wanted std > 0", lambda: nn.init.trunc_normal_(x, std=0))


@pytest.mark.parametrize("row", shows.rows)
def test_difference(row):
    shows.show(row)


def test_every_difference_is_on_the_page():
    shows.check()
