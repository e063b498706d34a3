"""PyTorch's side of the page of differences where only PyTorch takes something; a row that died is named here."""

import math

import numpy as np
import pytest

from tests.difference_rows import REFUSED, Shown, gives, refuses, warns

torch = pytest.importorskip("torch")
functional = torch.nn.functional
shows = Shown(REFUSED)


def tensor(values, dtype="float64"):
    return torch.tensor(np.array(values, dtype))


def whole(values):
    return tensor(values, "int64")


def sgd(params=None, **options):
    return torch.optim.SGD([tensor([1.0])] if params is None else params, **{"lr": 0.1, **options})


@shows("numbers in Tensors")
def numbers_in_tensors_are_numbers():
    x, half = tensor([-1.0]), tensor(0.5)
    gives(torch.add(x, x, alpha=half), [-1.5])
    gives(torch.addmm(x, x[None], x[None], beta=half, alpha=half), [[0]])
    gives(functional.leaky_relu(x, half), [-0.5])
    gives(functional.huber_loss(x, x, delta=half), 0)


@shows("`label_smoothing`, rates")
def numbers_may_be_anything():
    gives(functional.cross_entropy(tensor([1.0]), whole(0), label_smoothing=math.nan), 0)
    assert sgd(lr=math.inf).param_groups[0]["lr"] == math.inf and math.isnan(sgd(lr=math.nan).param_groups[0]["lr"])


@shows("options of schedules")
def schedules_take_any_options():
    schedules = torch.optim.lr_scheduler
    assert schedules.MultiStepLR(sgd(), [-1]) and schedules.MultiStepLR(sgd(), [1.5])
    assert schedules.ConstantLR(sgd(), factor=0) and schedules.ConstantLR(sgd(), total_iters=0)
    assert schedules.ReduceLROnPlateau(sgd(), factor=-1)


@shows("flags of optimisers")
def flags_of_optimisers_are_anything():
    assert sgd(maximize="yes").param_groups[0]["maximize"] == "yes" and sgd(nesterov=1, momentum=0.9)


@shows("parameters")
def parameters_have_no_order():
    x = tensor([1.0])
    warns("duplicate parameters", lambda: sgd([x, x]))
    assert sgd({x})


@shows("keys")
def keys_are_floats_too():
    x = tensor([1.0, 2.0])
    gives(x[[0.5]], [1])
    gives(x[..., ...], [1, 2])
    gives(warns("uint8 is now deprecated", lambda: x[tensor([1, 0], "uint8")]), [1])


@shows("a list of lists")
def a_list_of_lists_is_a_tuple():
    gives(warns("non-tuple sequence", lambda: tensor([[1, 2], [3, 4]])[[[0, 1], [1, 0]]]), [2, 3])


@shows("indices")
def indices_are_not_always_checked():
    assert torch.zeros(0, 3)[:, whole([5])].shape == (0, 1)
    gives(torch.take_along_dim(tensor([1.0, 2.0]), whole([5]), 0), [2])


@shows("fractions for integers")
def fractions_are_cut_off():
    x = whole([[1]])
    gives(torch.addmm(x, x, x, beta=1.5), [[2]])
    gives(functional.pad(x, (1, 1), value=1.5), [[1, 1, 1]])


@shows("powers of integers")
def integers_have_more_powers():
    gives(whole([2, 1]) ** whole([-1, -1]), [0, 1])
    gives(torch.pow(tensor([True], bool), True), [True])


@shows("the condition of `where`")
def conditions_are_bytes_too():
    condition = tensor([1], "uint8")
    gives(warns("uint8 condition", lambda: torch.where(condition, 1.0, tensor([2.0]))), [1])


@shows("`l1_loss` of two integer")
def one_loss_is_of_integers():
    gives(functional.l1_loss(whole([1]), whole([3]), reduction="sum"), 2)
    gives(functional.l1_loss(tensor([1], "uint8"), tensor([3], "uint8"), reduction="none"), [254])
    refuses(RuntimeError, "mean", lambda: functional.l1_loss(whole([1]), whole([3])))


@shows("scores without classes")
def there_may_be_no_class():
    x, target = torch.zeros(0, 0), whole([])
    gives(functional.cross_entropy(x, target), math.nan)
    gives(functional.cross_entropy(x, target, reduction="sum"), 0)


@shows("`linear` with a bias")
def a_bias_is_broadcast():
    gives(functional.linear(tensor([[1.0]]), tensor([[1.0]]), tensor([[1.0]])), [[2]])


@shows("`tensordot(dims=True)`")
def a_bool_counts_one():
    gives(torch.tensordot(tensor([1.0]), tensor([1.0]), dims=True), 1)


@shows("`cat` of vectors")
def cat_takes_any_dimension():
    assert torch.cat([tensor([]), tensor([])], 1).shape == (0,)


@shows("`scatter(reduce=)`")
def options_are_there():
    x, index = tensor([1.0]), whole([0])
    gives(warns("reduce argument", lambda: torch.scatter(x, 0, index, x, reduce="add")), [2])
    gives(torch.gather(x, 0, index, sparse_grad=True), [1])


@shows("images without channels")
def images_may_have_no_channels():
    assert functional.conv2d(torch.ones(1, 0, 4, 4), torch.ones(2, 0, 2, 2)).numel() == 0


@shows("`output_padding`")
def output_padding_is_not_always_checked():
    x, weight = torch.ones(0, 1, 4, 4), torch.ones(1, 1, 2, 2)
    assert functional.conv_transpose2d(x, weight, output_padding=3).shape == (0, 1, 8, 8)


@shows("`max_pool2d` windows")
def windows_may_be_empty():
    x = torch.ones(1, 1, 2, 2)
    gives(functional.max_pool2d(x, 2, stride=1, padding=1, dilation=3), [[[[-math.inf]]]])


@shows("running statistics")
def frozen_statistics_are_written():
    frozen, x = np.ones(1, np.float32), torch.ones(2, 1, 2, 2)
    frozen.flags.writeable = False
    mean = warns("not writable", lambda: torch.from_numpy(frozen))
    functional.batch_norm(x, mean, torch.ones(1), training=True, momentum=0.5)
    assert mean.data_ptr() == frozen.ctypes.data


@shows("`dropout2d`")
def channels_are_dropped_from_anything():
    assert warns("2-D input", lambda: functional.dropout2d(torch.ones(2, 3))).shape == (2, 3)


@shows("`Upsample`")
def upsample_checks_later():
    assert torch.nn.Upsample(size=2, scale_factor=2)
    refuses(ValueError, "size or scale_factor", lambda: torch.nn.Upsample()(torch.ones(1, 1, 2, 2)))


class Owner(torch.nn.Module):
    part = None


@shows("a Module assigned")
def parts_are_hidden():
    owner = Owner()
    owner.part = torch.nn.ReLU()
    assert owner.part is None and list(owner.children())


@shows("`ParameterList`")
def parameters_are_anything():
    assert torch.nn.ParameterList([1])[0] == 1


@shows("`trunc_normal_`")
def a_range_may_hold_nothing():
    x = torch.ones(3)
    warns("more than 2 std", lambda: torch.nn.init.trunc_normal_(x, a=5, b=6))
    refuses(ZeroDivisionError, "division by zero", lambda: torch.nn.init.trunc_normal_(x, std=0))


@pytest.mark.parametrize("row", shows.rows)
def test_difference_in_pytorch(row):
    shows.show(row)


def test_every_difference_is_on_the_page():
    shows.check()
