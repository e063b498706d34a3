"""Every layer beside PyTorch's of the same name and arguments: values, gradients, state, text and first parameters."""

import copy

import numpy as np
import pytest

from minigrad import Tensor, nn
from minigrad.engine import grad

torch = pytest.importorskip("torch")

IMAGES = (4, 6, 9, 8)
LAYERS = [  # name, positional arguments, keyword arguments, shape of the input
    ("Identity", (), {}, (3, 4)),
    ("Flatten", (), {}, IMAGES),
    ("Flatten", (0, 1), {}, IMAGES),
    ("ReLU", (), {}, IMAGES),
    ("Sigmoid", (), {}, IMAGES),
    ("Tanh", (), {}, IMAGES),
    ("Softmax", (1,), {}, IMAGES),
    ("LogSoftmax", (-1,), {}, (5, 7)),
    ("Dropout", (0.0,), {}, IMAGES),
    ("Linear", (7, 5), {}, (3, 7)),
    ("Linear", (7, 5, False), {}, (2, 3, 7)),
    ("Linear", (7, 5), {}, (7,)),
    ("Conv2d", (6, 4, 3), {}, IMAGES),
    ("Conv2d", (6, 4, (3, 2), (2, 1), (1, 2)), {}, IMAGES),
    ("Conv2d", (6, 4, 3), {"padding": "same"}, IMAGES),
    ("Conv2d", (6, 4, (4, 2)), {"padding": "same", "dilation": (1, 3)}, IMAGES),
    ("Conv2d", (6, 4, 3), {"padding": "valid", "stride": 2, "bias": False}, IMAGES),
    ("Conv2d", (6, 9, 3), {"groups": 3, "padding": 2, "dilation": 2}, IMAGES),
    ("Conv2d", (6, 12, 1), {"groups": 6}, IMAGES),
    ("MaxPool2d", (2,), {}, IMAGES),
    ("MaxPool2d", (3, 2, 1), {"ceil_mode": True}, IMAGES),
    ("MaxPool2d", ((2, 3), 1, (1, 1), 2), {}, IMAGES),
    ("AvgPool2d", (2,), {}, IMAGES),
    ("AvgPool2d", (3, 2, 1, True, False), {}, IMAGES),
    ("AvgPool2d", ((2, 3), 1, (1, 1)), {"divisor_override": 5}, IMAGES),
    ("AdaptiveAvgPool2d", (1,), {}, IMAGES),
    ("AdaptiveAvgPool2d", ((4, None),), {}, IMAGES),
    ("BatchNorm2d", (6,), {}, IMAGES),
    ("BatchNorm2d", (6, 1e-3, None), {}, IMAGES),
    ("BatchNorm2d", (6,), {"affine": False, "momentum": 0.3}, IMAGES),
    ("BatchNorm2d", (6,), {"track_running_stats": False}, IMAGES),
    ("BatchNorm2d", (6,), {"bias": False}, IMAGES),
]
IDS = [f"{name}{args}{kwargs}{shape}".replace(" ", "") for name, args, kwargs, shape in LAYERS]


def close(ours, theirs, what):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape, what
    scale = np.abs(theirs).max(initial=1e-3)  # below it, relative errors of sums that cancel say nothing
    np.testing.assert_allclose(np.asarray(ours.detach()), theirs, rtol=1e-7, atol=1e-7 * scale, err_msg=what)


def pair_of_layers(name, args, kwargs):
    """Our layer and PyTorch's in float64, with PyTorch's parameters."""
    theirs = getattr(torch.nn, name)(*args, **kwargs).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # so that weights of BatchNorm2d differ from 1
    ours = getattr(nn, name)(*args, **kwargs).double()
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    return ours, theirs


def check_call(ours, theirs, x, training):
    ours.train(training), theirs.train(training)
    x1, x2 = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    out1, out2 = ours(x1), theirs(x2)
    close(out1, out2, "output")
    w = np.random.default_rng(1).standard_normal(out1.shape)
    parameters = dict(theirs.named_parameters())
    assert [key for key, _ in ours.named_parameters()] == list(parameters)
    gradients1 = grad(out1, [x1, *ours.parameters()], Tensor(w))
    gradients2 = torch.autograd.grad(out2, [x2, *parameters.values()], torch.tensor(w))
    for key, ours_, theirs_ in zip(["input", *parameters], gradients1, gradients2, strict=True):
        close(ours_, theirs_, f"gradient of {key}")


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")  # PyTorch's own cost
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name, args, kwargs, shape", LAYERS, ids=IDS)
def test_layer(name, args, kwargs, shape, training):
    torch.manual_seed(0)
    ours, theirs = pair_of_layers(name, args, kwargs)
    for seed in range(3):  # running statistics of one call show in the next
        check_call(ours, theirs, np.random.default_rng(seed).standard_normal(shape), training)
    check_call(ours, theirs, np.random.default_rng(9).standard_normal(shape), False)
    state, wanted = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(wanted)
    for key, value in wanted.items():
        close(state[key], value, key)
    theirs.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in state.items()})


@pytest.mark.parametrize("name, args, kwargs, shape", LAYERS, ids=IDS)
def test_text(name, args, kwargs, shape):
    assert repr(getattr(nn, name)(*args, **kwargs)) == repr(getattr(torch.nn, name)(*args, **kwargs))


def test_text_of_nested_modules():
    def build(library):
        block = library.Sequential(library.Conv2d(1, 2, 3, padding="same", bias=False), library.BatchNorm2d(2))
        return library.Sequential(block, library.Sequential(), library.Flatten(), library.Linear(2, 3))

    assert repr(build(nn)) == repr(build(torch.nn))
    assert repr(nn.ReLU(True)) == repr(torch.nn.ReLU(True))


CLASSES = {
    "numbers": ((8, 5), (8,)),
    "numbers of pixels": ((4, 5, 3, 2), (4, 3, 2)),
    "one number": ((5,), ()),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [{}, {"ignore_index": 2}, {"weight": True}, {"weight": True, "ignore_index": 1}])
@pytest.mark.parametrize("name", ["CrossEntropyLoss", "NLLLoss", "CrossEntropyLoss smoothed"])
@pytest.mark.parametrize("shapes", CLASSES.values(), ids=CLASSES)
def test_loss_of_classes(name, options, reduction, shapes):
    rng = np.random.default_rng(0)
    x, target = rng.standard_normal(shapes[0]), rng.integers(0, 5, shapes[1])
    if options.get("ignore_index") == target.item(0) and target.ndim == 0 and reduction == "mean":
        target = target - 1  # a mean over no rows is NaN in both
    name, _, smoothed = name.partition(" ")
    options = {**options, "reduction": reduction, **({"label_smoothing": 0.2} if smoothed else {})}
    weight = rng.uniform(0.5, 2, 5)
    ours, theirs = (
        getattr(library, name)(**options | ({"weight": make(weight)} if "weight" in options else {}))
        for library, make in ((nn, Tensor), (torch.nn, torch.tensor))
    )
    x1, x2 = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    loss1, loss2 = ours(x1, Tensor(target)), theirs(x2, torch.tensor(target))
    close(loss1, loss2, "loss")
    loss1.sum().backward(), loss2.sum().backward()
    close(x1.grad, x2.grad, "gradient")
    assert list(ours.state_dict()) == list(theirs.state_dict())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_mse_loss(reduction):
    x, y = np.random.default_rng(0).standard_normal((2, 5, 3))
    x1, x2 = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    loss1 = nn.MSELoss(reduction=reduction)(x1, Tensor(y))
    loss2 = torch.nn.MSELoss(reduction=reduction)(x2, torch.tensor(y))
    close(loss1, loss2, "loss")
    loss1.sum().backward(), loss2.sum().backward()
    close(x1.grad, x2.grad, "gradient")


def lenet(library):
    return library.Sequential(
        *(library.Conv2d(1, 6, 5), library.BatchNorm2d(6), library.ReLU(), library.MaxPool2d(2)),
        *(library.Conv2d(6, 16, 5, padding=2), library.ReLU(), library.AdaptiveAvgPool2d(4), library.Flatten()),
        *(library.Linear(256, 84), library.Tanh(), library.Linear(84, 10)),
    )


def test_network_and_state_both_ways():
    theirs, ours = lenet(torch.nn).double(), lenet(nn).double()
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).standard_normal((8, 1, 20, 20))
    check_call(ours, theirs, x, True)
    fresh = copy.deepcopy(lenet(torch.nn).double())
    fresh.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in ours.state_dict().items()})
    check_call(ours, fresh, x, False)


@pytest.mark.parametrize("name, args", [("Linear", (300, 200)), ("Conv2d", (30, 40, (3, 5))), ("BatchNorm2d", (7,))])
def test_first_parameters_are_drawn_alike(name, args):
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    for (key, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        a, b = np.asarray(a.detach()), b.detach().numpy()
        assert a.dtype == b.dtype == np.float32
        bound = max(np.abs(b).max(), np.abs(a).max())
        tolerance = 0.1 * bound if b.size < 1000 else 0.01 * bound
        assert abs(np.abs(a).max() - np.abs(b).max()) <= tolerance, key
        assert abs(a.std() - b.std()) <= tolerance, key


@pytest.mark.parametrize("name, param", [("linear", None), ("conv2d", None), ("sigmoid", None), ("tanh", None)])
def test_gain(name, param):
    assert nn.init.calculate_gain(name, param) == pytest.approx(torch.nn.init.calculate_gain(name, param), rel=1e-15)


@pytest.mark.parametrize("name, param", [("relu", None), ("leaky_relu", None), ("leaky_relu", 0.3), ("selu", None)])
def test_gain_of_rectifiers(name, param):
    assert nn.init.calculate_gain(name, param) == pytest.approx(torch.nn.init.calculate_gain(name, param), rel=1e-15)
