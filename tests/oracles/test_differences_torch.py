"""PyTorch's side of the first table of the page of differences: a row that no longer differs is named here."""

import numpy as np
import pytest

from tests.difference_rows import MAIN, Shown, gives, refuses, warns

torch = pytest.importorskip("torch")
functional = torch.nn.functional
shows = Shown(MAIN)


@shows("Tensors")
def values_are_changed():
    x = torch.tensor([1.0, 2.0])
    x[0] = 3.0
    old = x
    x += 1
    gives(old, [4, 3])
    gives(torch.add(x, x, out=x), [8, 6])


@shows("`Tensor(array)`")
def arrays_are_copied():
    gives(torch.Tensor(np.ones(2, np.int64)), [1, 1])
    assert torch.Tensor(np.ones(2)).dtype == torch.float32
    assert torch.Tensor(2, 3).shape == (2, 3)
    assert np.shares_memory(torch.from_numpy(array := np.ones(2)).numpy(), array)


@shows("`x.dtype`")
def types_are_its_own():
    x = torch.ones(2)
    assert isinstance(x.dtype, torch.dtype) and x.device == torch.device("cpu") and not hasattr(x, "array")


@shows("an update by way of `x.data`")
def updates_of_data_are_not_noticed():
    x = torch.ones(2, requires_grad=True)
    y = (x * x).sum()
    x.data += 1
    y.backward()
    gives(x.grad, [4, 4])


@shows("element types")
def there_are_more_element_types():
    assert torch.ones(2).to(torch.complex64).is_complex() and torch.bfloat16.is_floating_point
    refuses(TypeError, "dtype", lambda: torch.ones(2, dtype="float64"), lambda: torch.ones(2, dtype=np.float64))


@shows("float16 and bfloat16")
def steps_of_16_bits_are_rounded():
    p = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    p.grad = torch.ones(1, dtype=torch.bfloat16)
    torch.optim.SGD([p], lr=1.0, weight_decay=2**-9).step()
    gives(p.detach().float(), [0])
    x = torch.tensor([1.0, 6.0], dtype=torch.bfloat16)
    gives(functional.normalize(x, dim=0).float(), [0.1640625, 0.984375])
    refuses(TypeError, "BFloat16", x.numpy)


@shows("devices")
def there_are_more_devices():
    assert torch.device("cuda").type == "cuda" and torch.ones(2, device="meta").is_meta


@shows("memory")
def images_and_filters_lie_channels_first():
    layer = torch.nn.Conv2d(3, 4, 3)
    assert layer(torch.ones(2, 3, 8, 8)).is_contiguous() and layer.weight.is_contiguous()


@shows("`view`")
def views_share_memory():
    x = torch.ones(2, 3, 4, 4)
    assert x.view(2, -1).data_ptr() == x.data_ptr()
    refuses(RuntimeError, "not compatible", lambda: x.to(memory_format=torch.channels_last).view(2, -1))


@shows("errors")
def errors_are_mostly_of_state():
    x = torch.ones(2, 3)
    refuses(RuntimeError, "shapes", lambda: x @ x)
    refuses(RuntimeError, "state_dict", lambda: torch.nn.Linear(1, 1).load_state_dict({}))
    refuses(RuntimeError, "mean", lambda: torch.ones(2, dtype=torch.int64).mean())


@shows("classes out of range")
def classes_out_of_range_are_subscripts():
    for loss in (functional.cross_entropy, functional.nll_loss):
        refuses(IndexError, "out of bounds", lambda loss=loss: loss(torch.ones(2, 3), torch.tensor([0, 3])))


@shows("class numbers")
def indices_have_few_types():
    x, short = torch.tensor([[1.0, 2.0]]), torch.tensor([1], dtype=torch.int16)
    gives(functional.nll_loss(x, short.to(torch.uint8)), -2)
    gives(torch.gather(x, 1, short[None].int()), [[2]])
    refuses(RuntimeError, "Long or Byte", lambda: functional.nll_loss(x, short))
    refuses(RuntimeError, "int32/int64", lambda: torch.gather(x, 1, short[None]))
    refuses(RuntimeError, "Long, Int", lambda: functional.embedding(short, x.T))
    refuses(RuntimeError, "LongTensor", lambda: functional.one_hot(short.int()))


@shows("elementwise functions")
def only_tensors_are_tensors():
    x = torch.tensor([-1.0, 1.0])
    refuses(TypeError, "must be Tensor", lambda: torch.maximum(x, 0), lambda: torch.exp(0.0))
    refuses(TypeError, "must be Tensor", lambda: torch.add(x, np.ones(2)))


@shows("numbers that do not fit")
def numbers_wrap_around():
    x = torch.ones(1, dtype=torch.uint8)
    gives(x + 300, [45])
    gives(x + -1, [0])
    gives(torch.masked_fill(x, x == 1, -1), [255])


@shows("subscripts")
def steps_go_forward():
    x = torch.tensor([1.0, 2.0, 3.0])
    refuses(ValueError, "step must be greater than zero", lambda: x[::-1])
    assert torch.flip(x, (0,)).data_ptr() != x.data_ptr()


@shows("a size")
def sizes_stand_in_a_row():
    x = torch.ones(2, 3)
    refuses(TypeError, "must be tuple", lambda: torch.reshape(x, -1), lambda: torch.flip(x, 0))
    refuses(TypeError, "must be tuple", lambda: torch.tile(x, 2))
    assert x.reshape(-1).shape == (6,)


@shows("losses")
def options_of_losses_go_by_position():
    x, target = torch.ones(2, 3), torch.tensor([0, -1])
    gives(functional.cross_entropy(x, target, None, None, -1), np.log(3))
    gives(warns("deprecated", lambda: functional.mse_loss(x, x, size_average=True)), 0)


@shows("`softmax`")
def softmax_guesses():
    for name in ("softmax", "log_softmax"):
        x = torch.ones(2, 4)
        wanted = getattr(functional, name)(x, 1).tolist()
        gives(warns("Implicit dimension", lambda name=name, x=x: getattr(functional, name)(x)), wanted)
    for layer in (torch.nn.Softmax(), torch.nn.LogSoftmax()):
        warns("Implicit dimension", lambda layer=layer: layer(x))


@shows("`inplace=`")
def inplace_changes_the_input():
    x = torch.tensor([-1.0])
    assert torch.nn.ReLU(inplace=True)(x).item() == 0 and x.item() == 0


@shows("`norm`")
def norms_are_of_matrices_too():
    gives(torch.norm(torch.ones(2, 2), "nuc"), 2)


@shows("arguments that would change")
def there_are_more_arguments():
    index, weight, image = torch.tensor([0]), torch.ones(2, 4), torch.ones(1, 1, 4, 4)
    gives(functional.embedding(index, weight, max_norm=1.0), [[0.5] * 4])
    gives(weight[0], [0.5] * 4)
    assert torch.nn.Embedding(2, 3, sparse=True).sparse
    gives(functional.interpolate(image, size=2, mode="bilinear", antialias=True), [[[[1, 1], [1, 1]]]])
    gives(functional.max_pool2d(image, 4, return_indices=True)[1], [[[[0]]]])
    gives(torch.gather(weight[1], 0, index, sparse_grad=True), [1])
    gives(torch.add(weight[1], weight[1], alpha=2), [3] * 4)


@shows("convolution, pooling")
def images_are_whole_too_and_resized_by_more_modes():
    x, image = torch.ones(1, 1, 4, 4, dtype=torch.int64), torch.ones(1, 1, 4, 4)
    for out in (functional.conv2d(x, x), functional.max_pool2d(x, 2), functional.avg_pool2d(x, 2)):
        assert out.dtype == torch.int64
    assert functional.interpolate(x.to(torch.uint8), size=2).dtype == torch.uint8
    for mode in ("area", "bicubic", "trilinear", "nearest-exact"):
        volume = image[None] if mode == "trilinear" else image
        gives(functional.interpolate(volume, size=2, mode=mode).sum(), 8 if mode == "trilinear" else 4)
    assert functional.interpolate(image[None], size=2).shape == (1, 1, 2, 2, 2)


@shows("wrong options of a layer")
def options_are_checked_when_a_layer_is_called():
    wide = torch.nn.MaxPool2d(2, padding=3)
    refuses(RuntimeError, "pad", lambda: wide(torch.ones(1, 1, 4, 4)))
    assert torch.nn.Conv2d(3, 4, 3, stride=0) and torch.nn.MSELoss(reduction="x") and torch.nn.BatchNorm2d(3, eps=-1)


@shows("optimisers")
def optimisers_have_several_ways_to_run():
    params = [torch.ones(2, requires_grad=True)]
    for option in ("foreach", "fused", "differentiable"):
        assert torch.optim.SGD(params, lr=0.1, **{option: True}).param_groups[0][option]
    assert torch.optim.Adam(params, capturable=False).param_groups[0]["capturable"] is False
    optimizer = torch.optim.RMSprop(params, 0.1, 0.9, 1e-8, 0, 0, False, False, None, True)
    assert optimizer.param_groups[0]["maximize"]
    assert torch.optim.SGD([{"params": params, "foo": 1}], lr=0.1).param_groups[0]["foo"] == 1


@shows("a rate in a Tensor")
def rates_may_be_tensors():
    rate = torch.tensor(0.1)
    assert torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=rate).param_groups[0]["lr"] is rate


@shows("`OneCycleLR`")
def one_cycle_cycles_momentum():
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=4)
    assert optimizer.param_groups[0]["momentum"] == 0.95


@shows("schedules")
def schedules_go_on_from_the_last_rate():
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    optimizer.param_groups[0]["initial_lr"] = 0.4
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5, last_epoch=2)
    assert schedule.get_last_lr() == [0.1] and schedule.state_dict()["gamma"] == 0.5


@shows("random numbers")
def random_numbers_are_its_own():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        gives(torch.rand(1), [0.49626], 1e-4)


@shows("training on many")
def training_on_many_has_its_own_names():
    from importlib.util import find_spec

    from torch import distributed, nn

    assert find_spec("torch.distributed.optim") and nn.SyncBatchNorm.convert_sync_batchnorm
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        inner = nn.Linear(2, 3)
        inner.forward = lambda x: (inner.weight * x).sum()  # without the bias
        model = nn.parallel.DistributedDataParallel(inner)
        assert list(model.state_dict()) == ["module.weight", "module.bias"]
        model(torch.ones(2)).backward()
        with pytest.raises(RuntimeError, match="Expected to have finished reduction"):
            model(torch.ones(2)).backward()
    finally:
        distributed.destroy_process_group()


@shows("names elsewhere")
def some_names_live_elsewhere():
    assert all(map(callable, (torch.autograd.grad, torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_)))
    assert torch.utils.data.DataLoader and torch.save and torch.load
    assert not hasattr(torch, "grad") and not hasattr(torch.optim, "clip_grad_norm_")


@pytest.mark.parametrize("row", shows.rows)
def test_difference_in_pytorch(row):
    shows.show(row)


def test_every_difference_is_on_the_page():
    shows.check()
