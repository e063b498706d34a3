"""The page of differences from PyTorch: every row of its first table is shown here by a function of the same words."""

import functools

import ml_dtypes
import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, data, nn, ops, optim, parallel
from tests.difference_rows import MAIN, Shown, gives, refuses

shows = Shown(MAIN)


@shows("Tensors")
def results_are_values():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = old = x * 2
    y += 1
    assert old.tolist() == [2, 4] and y.tolist() == [3, 5]
    refuses(RuntimeError, "input was made by add", lambda: y.add_(1))
    refuses(RuntimeError, "input was made by add", lambda: y.__setitem__(0, 1))
    assert not any(hasattr(x, name) for name in ("relu_", "sqrt_", "lerp_"))
    refuses(TypeError, "out", lambda: ops.add(x, x, out=x))


@shows("`Tensor(array)`")
def arrays_are_taken_as_they_are():
    array = np.ones(2)
    assert Tensor(array).array is array and Tensor(array).dtype == np.float64
    assert Tensor([1.5]).dtype == np.float32
    refuses(TypeError, "data is a Tensor already", lambda: Tensor(Tensor([1.0])))
    refuses(TypeError, "to make one of a shape", lambda: Tensor(2, 3))


@shows("`x.dtype`")
def types_are_those_of_numpy():
    x = minigrad.ones(2)
    assert type(x.array) is np.ndarray and isinstance(x.dtype, np.dtype) and x.device == "cpu"


@shows("an update by way of `x.data`")
def updates_of_data_are_noticed():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y, z = (x * x).sum(), (x * x).sum()
    x.data += 1
    refuses(RuntimeError, "was changed after it was used", y.backward)
    x.data = np.zeros(2, np.float32)
    refuses(RuntimeError, "was changed after it was used", z.backward)


@shows("element types")
def element_types_have_names():
    assert minigrad.ones(2, dtype="float64").dtype == minigrad.ones(2, dtype=np.float64).dtype == np.float64
    assert minigrad.ones(2, dtype="bfloat16").dtype == minigrad.bfloat16 == ml_dtypes.bfloat16
    refuses(TypeError, "complex64", lambda: minigrad.ones(2).to("complex64"))


@shows("float16 and bfloat16")
def steps_of_16_bits_are_not_rounded():
    """The weight decay is too small to be seen in the gradient, 1 + 2^-9, but not in what is left of the parameter."""
    p = nn.Parameter(np.ones(1, minigrad.bfloat16))
    p.grad = minigrad.ones(1, dtype="bfloat16")
    optim.SGD([p], lr=1.0, weight_decay=2**-9).step()
    gives(p.detach().float(), [-(2**-9)])
    x = minigrad.tensor([1.0, 6.0], dtype="bfloat16")
    gives(ops.normalize(x, dim=0).float(), [0.1640625, 0.98828125])  # 6 / sqrt(37) = 0.9864, spaced by 2^-8
    assert x.numpy().dtype == minigrad.bfloat16
    refuses(BufferError, "call .float()", lambda: np.from_dlpack(x))


@shows("devices")
def devices_are_three_kinds():
    assert minigrad.ones(2, device="interpreter").device == "interpreter"
    refuses(TypeError, "wanted 'cpu', 'cuda', 'cuda:0'", lambda: minigrad.ones(2, device="meta"))


@shows("memory")
def images_and_filters_lie_channels_last():
    layer = nn.Conv2d(3, 4, 3)
    out = layer(minigrad.ones(2, 3, 8, 8))
    assert out.shape == (2, 4, 6, 6) and out.array.strides[1] == out.dtype.itemsize
    assert layer.weight.shape == (4, 3, 3, 3) and layer.weight.array.strides[0] == 4


@shows("`view`")
def images_are_viewed_in_their_order():
    out = nn.Conv2d(3, 4, 3)(minigrad.ones(2, 3, 8, 8)).detach()
    assert np.array_equal(out.view(2, -1).array, out.array.reshape(2, -1))


@shows("errors")
def errors_are_pythons():
    x = minigrad.ones(2, 3)
    refuses(ValueError, "matmul", lambda: x @ x)
    refuses(ValueError, "load_state_dict", lambda: nn.Linear(1, 1).load_state_dict({}))
    refuses(TypeError, "mean: input has elements", lambda: minigrad.ones(2, dtype="int64").mean())
    refuses(IndexError, "dim is 2", lambda: x.sum(2))
    refuses(RuntimeError, "no scalar", lambda: minigrad.ones(2, requires_grad=True).exp().backward())
    for error in (ValueError, TypeError, IndexError, RuntimeError, KeyError):
        assert any(issubclass(one, error) for one in minigrad.MinigradError.__subclasses__())


@shows("classes out of range")
def classes_out_of_range_are_named():
    target = Tensor(np.array([0, 3]))
    for loss in (ops.cross_entropy, ops.nll_loss):
        refuses(
            ValueError, "target[1] = 3, but there are 3 classes", lambda loss=loss: loss(minigrad.ones(2, 3), target)
        )


@shows("class numbers")
def indices_have_any_integer_type():
    x = Tensor([[1.0, 2.0]])
    for dtype in ("int8", "int16", "int32", "int64", "uint8"):
        one = minigrad.ones(1, dtype=dtype)
        gives(ops.nll_loss(x, one), -2)
        gives(ops.gather(x, 1, one[None]), [[2]])
        gives(ops.embedding(one, x.T), [[2]])
        gives(ops.one_hot(one), [[0, 1]])


@shows("elementwise functions")
def numbers_and_arrays_stand_for_tensors():
    x = Tensor([-1.0, 1.0])
    gives(ops.maximum(x, 0), [0, 1])
    gives(ops.add(x, np.ones(2)), [0, 2])
    gives(ops.exp(0.0), 1)


@shows("numbers that do not fit")
def numbers_have_to_fit():
    x = minigrad.ones(1, dtype="uint8")
    refuses(ValueError, "does not fit in uint8", lambda: x + 300, lambda: x + -1)
    refuses(ValueError, "does not fit in uint8", lambda: ops.masked_fill(x, x == 1, -1))


@shows("subscripts")
def steps_may_be_negative():
    x = Tensor([1.0, 2.0, 3.0])
    gives(x[::-1], [3, 2, 1])
    assert np.shares_memory(ops.flip(x, (0,)).array, x.array)


@shows("a size")
def one_size_may_stand_alone():
    x = minigrad.ones(2, 3)
    assert ops.reshape(x, -1).shape == (6,) and minigrad.full(2, 1.0).shape == (2,)
    assert ops.flip(x, 0).shape == (2, 3) and ops.tile(x, 2).shape == (2, 6)


@shows("losses")
def options_of_losses_go_by_name():
    x, target = minigrad.ones(2, 3), Tensor(np.array([0, 1]))
    refuses(TypeError, "positional", lambda: ops.cross_entropy(x, target, None, None, -100), lambda: nn.MSELoss("sum"))
    refuses(TypeError, "size_average", lambda: ops.mse_loss(x, x, size_average=True))


@shows("`softmax`")
def softmax_wants_a_dimension():
    x = minigrad.ones(2, 3)
    refuses(TypeError, "dim", lambda: ops.softmax(x), lambda: ops.log_softmax(x), nn.Softmax, nn.LogSoftmax)


@shows("`inplace=`")
def inplace_changes_nothing():
    x = Tensor([-1.0])
    assert nn.ReLU(inplace=True)(x).item() == 0 and x.item() == -1


@shows("`norm`")
def norms_are_of_vectors():
    refuses(TypeError, "norm: p is 'nuc'", lambda: ops.norm(minigrad.ones(2, 2), "nuc"))
    gives(ops.norm(Tensor([[3.0, 4.0], [0.0, 0.0]]), 3, (0, 1)), 91 ** (1 / 3))


@shows("arguments that would change")
def arguments_that_are_not_built_are_absent():
    index, x = Tensor(np.array([[0]])), minigrad.ones(1, 1, 2, 2)
    for call, option in (
        (lambda **given: ops.embedding(index, x[0, 0], **given), "max_norm"),
        (lambda **given: nn.Embedding(2, 3, **given), "sparse"),
        (lambda **given: ops.gather(x[0, 0], 0, index, **given), "sparse_grad"),
        (lambda **given: ops.interpolate(x, size=2, **given), "antialias"),
        (lambda **given: ops.max_pool2d(x, 2, **given), "return_indices"),
        (lambda **given: ops.add(x, x, **given), "alpha"),
    ):
        refuses(TypeError, option, functools.partial(call, **{option: 1.0}))


@shows("convolution, pooling")
def images_are_floating_and_resized_by_few_modes():
    x, image = minigrad.ones(1, 1, 4, 4, dtype="int64"), minigrad.ones(1, 1, 4, 4)
    refuses(TypeError, "wanted floating", lambda: ops.conv2d(x, x), lambda: ops.max_pool2d(x, 2))
    refuses(TypeError, "wanted floating", lambda: ops.avg_pool2d(x, 2), lambda: ops.interpolate(x, size=2))
    for mode in ("area", "bicubic", "trilinear", "nearest-exact"):
        refuses(ValueError, "interpolate: mode", lambda mode=mode: ops.interpolate(image, size=2, mode=mode))
    refuses(ValueError, "interpolate: input", lambda: ops.interpolate(image[None], size=2))


@shows("wrong options of a layer")
def options_are_checked_when_a_layer_is_made():
    for call in (
        lambda: nn.Conv2d(3, 4, 3, stride=0),
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.BatchNorm2d(3, eps=-1),
        lambda: nn.MSELoss(reduction="x"),
    ):
        refuses(ValueError, "wanted", call)


@shows("optimisers")
def optimisers_have_one_way_to_run():
    params = [minigrad.ones(2, requires_grad=True)]
    assert optim.SGD(params, lr=0.1, foreach=True, fused=True).defaults.keys() == optim.SGD(params).defaults.keys()
    for option in ("capturable", "differentiable"):
        refuses(TypeError, option, lambda option=option: optim.SGD(params, lr=0.1, **{option: True}))
    refuses(TypeError, "positional", lambda: optim.RMSprop(params, 0.1, 0.9, 1e-8, 0, 0, False, False, None, True))
    refuses(ValueError, "foo", lambda: optim.SGD([{"params": params, "foo": 1}], lr=0.1))
    assert optim.Muon([minigrad.ones(2, 1, 3, 3)])


@shows("a rate in a Tensor")
def rates_are_numbers():
    optimizer = optim.SGD([minigrad.ones(2, requires_grad=True)], lr=Tensor(np.array(0.1)))
    assert type(optimizer.param_groups[0]["lr"]) is float


@shows("`OneCycleLR`")
def one_cycle_leaves_momentum_alone():
    optimizer = optim.SGD([minigrad.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
    refuses(TypeError, "cycle", lambda: optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 4, cycle_momentum=True))
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=4)
    for _ in range(3):
        schedule.step()
        assert optimizer.param_groups[0]["momentum"] == 0.9


@shows("schedules")
def schedules_are_functions_of_the_epoch():
    optimizer = optim.SGD([minigrad.ones(2, requires_grad=True)], lr=0.1)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    assert schedule.state_dict().keys() == {"schedule", "last_epoch", "base_lrs", "own_lrs"}
    refuses(TypeError, "last_epoch", lambda: optim.lr_scheduler.ExponentialLR(optimizer, 0.5, last_epoch=2))


@shows("random numbers")
def random_numbers_are_those_of_numpy():
    minigrad.manual_seed(0)
    assert abs(minigrad.rand(1).item() - 0.49626) > 1e-4


@shows("training on many")
def training_on_many_has_other_names():
    def run(world):
        model = parallel.DataParallel(nn.ModuleDict({"used": nn.Linear(2, 3), "unused": nn.Linear(2, 3)}), world)
        assert list(model.state_dict()) == ["used.weight", "used.bias", "unused.weight", "unused.bias"]
        (model.module["used"](Tensor([[1.0, 2.0]])).sum() * (world.rank + 1)).backward()
        assert model.module["used"].bias.grad.tolist() == [1.5] * 3
        assert model.module["unused"].bias.grad.tolist() == [0.0] * 3

    parallel.run_local(run, 2)


@shows("names elsewhere")
def some_names_live_elsewhere():
    assert all(map(callable, (minigrad.grad, optim.clip_grad_norm_, optim.clip_grad_value_)))
    assert all(map(callable, (checkpoint.save, checkpoint.load)))
    train, _ = data.digits()
    images, labels = next(iter(data.Loader(train, batch_size=2)))
    assert images.shape == (2, 1, 8, 8) and labels.shape == (2,)


@pytest.mark.parametrize("row", shows.rows)
def test_difference(row):
    shows.show(row)


def test_every_difference_is_on_the_page():
    shows.check()
