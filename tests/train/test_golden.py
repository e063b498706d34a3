"""Ten steps of LeNet: minigrad, and PyTorch where it is there, beside the losses that the references gave."""

import json

import numpy as np
import pytest

from minigrad import Tensor, nn, optim
from tests.train.golden import make

GOLDEN = json.loads(make.FILE.read_text())


def network(library):
    return library.Sequential(
        *(library.Conv2d(1, 6, 5), library.ReLU(), library.MaxPool2d(2)),
        *(library.Conv2d(6, 16, 5), library.ReLU(), library.MaxPool2d(2)),
        library.Flatten(),
        *(library.Linear(400, 120), library.ReLU(), library.Linear(120, 84), library.ReLU(), library.Linear(84, 10)),
    )


def train(model, cross_entropy, optimizer, x, y):
    losses = []
    for _ in range(make.STEPS):
        loss = cross_entropy(model(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [*losses, cross_entropy(model(x), y).item()]


def check(losses, dtype):
    errors = np.abs(np.subtract(losses, GOLDEN["losses"])) / GOLDEN["losses"][0]
    assert errors.max() <= GOLDEN["tolerance"][dtype], errors


def test_the_file_is_what_its_command_writes():
    check(make.trajectory(), "float64")


def test_the_trajectory_learns():
    losses = GOLDEN["losses"]
    assert losses[0] == pytest.approx(np.log(10), abs=0.2)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_minigrad(dtype):
    model = network(nn).to(dtype)
    model.load_state_dict(make.weights())
    images, classes = make.batch()
    optimizer = optim.SGD(model.parameters(), lr=make.RATE, momentum=make.MOMENTUM)
    x, y = Tensor(images.astype(dtype)), Tensor(classes)
    check(train(model, nn.CrossEntropyLoss(), optimizer, x, y), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pytorch(dtype):
    torch = pytest.importorskip("torch")
    model = network(torch.nn).to(getattr(torch, dtype))
    model.load_state_dict({name: torch.tensor(array) for name, array in make.weights().items()})
    images, classes = make.batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=make.RATE, momentum=make.MOMENTUM)
    x, y = torch.tensor(images.astype(dtype)), torch.tensor(classes)
    check(train(model, torch.nn.CrossEntropyLoss(), optimizer, x, y), dtype)
