"""Layers of one model on several devices, with the numbers of one."""

import numpy as np

import minigrad
from minigrad import Tensor, grad, nn, optim
from minigrad.nn import functional as F

from .stand_in_gpus import gpus


class Split(nn.Module):
    """Convolution and batch norm on one device, the linear layers on another, and a way from each around the other."""

    def __init__(self, first, second):
        self.conv = nn.Conv2d(1, 4, 3).to(first)
        self.norm = nn.BatchNorm2d(4).to(first)
        self.drop = nn.Dropout(0.25)
        self.linear = nn.Linear(4 * 16, 6).to(second)
        self.gate = nn.Linear(36, 6).to(first)
        self.head = nn.Linear(6, 3).to(second)
        self.first, self.second = first, second

    def forward(self, x):
        x = x.to(self.first)
        hidden = self.drop(F.relu(self.norm(self.conv(x)))).to(self.second)
        gate = F.sigmoid(self.gate(x.flatten(1)))
        hidden = self.linear(hidden.flatten(1))
        there_and_back = (hidden.to(self.first) * gate).to(self.second)
        return self.head(hidden + there_and_back)


def trained(first, second):
    """Losses and the state of the model after some steps, as NumPy arrays."""
    minigrad.manual_seed(0)
    model = Split(first, second)
    # An eps at which a gradient near 0 may change its sign.
    optimizer = optim.Adam(model.parameters(), lr=1e-2, eps=1e-3)
    x, y = minigrad.randn(4, 1, 6, 6), Tensor(np.arange(4) % 3)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y.to(second))
        loss.backward()
        for name, p in model.named_parameters():
            assert p.device == p.grad.device == (second if name.startswith(("linear", "head")) else first), name
        optimizer.step()
        losses.append(loss.item())
    return {"losses": np.array(losses), **{name: value.cpu().numpy() for name, value in model.state_dict().items()}}


def test_a_model_on_two_devices_trains_as_on_one():
    """GPUs are the stand-in's for CuPy, whose current GPU stays the first; arrays that meet on two would be refused."""
    wanted = trained("cpu", "cpu")
    with gpus(2):
        one, two = (trained("cuda:0", second) for second in ("cuda:0", "cuda:1"))
    found = [one, trained("interpreter", "cpu"), trained("cpu", "interpreter")]
    for name, value in wanted.items():
        assert one[name].tobytes() == two[name].tobytes(), name
        for values in found:
            np.testing.assert_allclose(values[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_gradients_of_second_order_cross_devices():
    x = Tensor(np.array([0.5, -1.0]), requires_grad=True)
    y = x.to("interpreter")
    (first,) = grad((y * y * y).to("cpu").sum(), x, create_graph=True)
    assert first.device == "cpu"
    np.testing.assert_allclose(first.detach().numpy(), 3 * x.detach().numpy() ** 2)
    np.testing.assert_allclose(grad(first.sum(), x)[0].numpy(), 6 * x.detach().numpy())
