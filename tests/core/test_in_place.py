"""Updates in place: what they write, into which Tensors, what they refuse, and what backward says of them."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, no_grad, optim
from minigrad.nn import functional as F
from minigrad.optim import Optimizer
from tests.device.stand_in_gpus import gpus

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((3, 4)).astype(np.float32) for _ in range(2))

UPDATES = {  # {what is written: the same in NumPy, None where it is the same text}
    "x -= 0.1 * y": "x -= np.float32(0.1) * y",
    "x *= y[0]": None,
    "x **= 2": None,
    "x @= x.T @ x": "x[...] = x @ (x.T @ x)",
    "x.mul_(0.9).add_(y, alpha=0.5)": "x[...] = x * np.float32(0.9) + np.float32(0.5) * y",
    "x.sub_(y[:, :1], alpha=-2)": "x -= -2 * y[:, :1]",
    "x.div_(y, rounding_mode='floor')": "x //= y",
    "x.clamp_(-0.5, 0.5)": "x[...] = x.clip(-0.5, 0.5)",
    "x.zero_()": "x[...] = 0",
    "x.fill_(3)": "x[...] = 3",
    "x.copy_(y[1])": "x[...] = y[1]",
    "x[1, 2] = y[0, 0]": None,
    "x[..., 1:3] = y[:, 2:]": None,
    "x[[0, 2], [3, 0]] = 7": None,
    "x[:, [0, 3]] = y[:, :2]": None,
    "x[y[:, 0] > 9] *= 2": None,
    "x[y[:, 1] > 0] *= 2": None,
    "x[1:] = x[:-1]": None,
}


def leaf(array):
    return Tensor(array.copy(), requires_grad=True)


def with_grad(x):
    w = leaf(X)
    w.grad = x.detach().clone()
    return w


KINDS = {  # {kind: (the owner of some memory, the Tensor on it that is updated)}
    "a leaf that requires a gradient": lambda x: (x, x),
    "its data": lambda x: (x, x.data),
    "its view": lambda x: (x, x.view(3, 4)),
    "a gradient": lambda x: ((w := with_grad(x)).grad, w.grad),
    "a result without a history": lambda x: ((y := x.detach() * 1), y),
    "on a GPU": lambda x: (x := x.to("cuda").detach(), x),
}


@pytest.mark.parametrize("text", UPDATES)
def test_an_update_is_that_of_numpy(text):
    """Of every kind of Tensor that may be updated."""
    wanted = {"np": np, "x": X.copy(), "y": Y}
    exec(UPDATES[text] or text, wanted)
    with gpus(1), no_grad():
        for kind, make in KINDS.items():
            owner, x = make(leaf(X))
            version, names = owner.version[0], {"x": x, "y": Tensor(Y).to(x.device)}
            exec(text, names)
            assert names["x"] is x and owner.version[0] > version and x.version is owner.version, kind
            np.testing.assert_array_equal(owner.detach().numpy(), wanted["x"], err_msg=kind, strict=True)


REFUSED = {  # {what is refused: the error and its words}
    "w += 1": (RuntimeError, "iadd: input is a leaf .*; put the update under `with no_grad.*or use an optimiser"),
    "w[0] = 1": (RuntimeError, "setitem: input is a leaf that requires a gradient"),
    "y.add_(1)": (RuntimeError, "add_: input was made by mul, whose backward may need it; make a new Tensor, as by x"),
    "x[0] = w[0]": (RuntimeError, "setitem: other requires a gradient, which would be lost"),
    "x.expand(2, 3, 4).add_(1)": (RuntimeError, "add_: the memory of input is read-only, or stands for several"),
    "x += x.expand(2, 3, 4)": (ValueError, r"iadd: input has shape \(3, 4\), the result would have \(2, 3, 4\)"),
    "x.copy_(x.T)": (ValueError, "copy_: shapes .* do not broadcast"),
    "x[0] = x": (ValueError, "setitem: value has shape"),
    "i += 0.5": (TypeError, "iadd: input has elements int64, the result would have float32; convert before"),
    "i.bool().add_(1)": (TypeError, "add_: input has elements bool, the result would have int64"),
    "i.fill_(1.5)": (TypeError, "fill_: val is 1.5, wanted a number that int64 can hold"),
    "x[[3]] = 1": (IndexError, "setitem: the indices run from 3 to 3"),
    "x[0] = 'one'": (TypeError, "setitem: value is 'one', wanted a number"),
    "x += 'one'": (TypeError, "unsupported operand"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_would_be_lost_is_refused(text):
    error, words = REFUSED[text]
    w, i = leaf(X), minigrad.arange(3)
    names = {"w": w, "x": Tensor(X.copy()), "y": w * 2, "i": i}
    with pytest.raises(error, match=words):
        exec(text, names)
    found = names["w"], names["x"], names["y"] / 2
    assert all(np.array_equal(one.array, X) for one in found) and i.tolist() == [0, 1, 2]


def test_types_stay():
    x, i, mask = Tensor(X.copy()), minigrad.arange(3), minigrad.zeros(3, dtype="bool")
    x += np.ones(4)  # float64
    i[0], i[1:] = 7.0, True
    i.copy_(np.array([1.9, 2, 3]))
    mask[1] = 1
    x.half().add_(1e-3).mul_(x)
    assert (x.dtype, i.dtype, mask.dtype) == (np.float32, np.int64, bool)
    assert i.tolist() == [1, 2, 3] and mask.tolist() == [False, True, False]


def test_what_is_recorded_makes_a_new_tensor():
    """As the sum of a residual block, which is fused as if it were written with `+`."""
    w, total = leaf(X), minigrad.zeros(())
    y = first = w * 2
    y += w
    y *= y
    zero = total
    total += y.sum()
    total.backward()
    np.testing.assert_allclose(w.grad.array, 18 * X, rtol=1e-6)
    assert zero.item() == 0 and np.array_equal(first.array, 2 * X)

    class Block(nn.Conv2d):
        def forward(self, x):
            out = super().forward(x)
            out += x
            return F.relu(out)

    block, x = Block(2, 2, 1), minigrad.randn(1, 2, 3, 3)
    out = block(x)
    with no_grad():
        assert out.node.primitive.name == "conv2d_add_relu" and np.array_equal(block(x).array, out.array)


def test_data_is_a_tensor_on_the_same_memory():
    with gpus(1):
        for place in ("cpu", "cuda:0"):
            w = Tensor(X.copy()).to(place).requires_grad_()
            w.data += -0.5 * Tensor(Y).to(place)
            wanted = X - np.float32(0.5) * Y
            np.testing.assert_array_equal(w.data.numpy(), wanted)
            assert w.requires_grad and w.is_leaf and not w.data.requires_grad and w.data.array is w.array
            w.data = w.data[0, 0] * 3
            assert w.item() == 3 * wanted[0, 0] and w.shape == () and w.requires_grad and w.device == place
    w.data = np.float64(2)  # what NumPy makes of an array without dimensions
    assert w.item() == 2 and isinstance(w.array, np.ndarray) and w.requires_grad and w.is_leaf
    with pytest.raises(TypeError, match="data: got a list, wanted a Tensor or an array"):
        w.data = [1.0]


class Momentum(Optimizer):
    """As one would write it for PyTorch."""

    def __init__(self, params, lr=0.1, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["step"], state["buffer"] = 0, minigrad.zeros_like(p)
                state["step"] += 1
                state["buffer"].mul_(group["momentum"]).add_(p.grad)
                p.data.add_(state["buffer"], alpha=-group["lr"])


def test_an_optimiser_of_ones_own_needs_a_step_alone():
    """Another one with its state goes on where it was."""
    found = []
    for kind, cut in ((optim.SGD, None), (Momentum, None), (Momentum, 3)):
        minigrad.manual_seed(1)
        model = nn.Linear(4, 2)
        optimizer = kind(model.parameters(), lr=0.1, momentum=0.9)
        for count in range(6):
            if count == cut:
                state, optimizer = optimizer.state_dict(), kind(model.parameters(), lr=0.7, momentum=0.1)
                optimizer.load_state_dict(state)
            optimizer.zero_grad(set_to_none=count % 2 == 0)
            (model(Tensor(X)) ** 2).mean().backward()
            optimizer.step()
        found.append(model.weight.array)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    np.testing.assert_array_equal(found[1], found[2])
    values = optimizer.state_dict()["state"][0]
    assert values["step"] == 6 and type(values["buffer"]) is np.ndarray and "'lr': 0.1" in repr(optimizer)


class Add(nn.ReLU):
    writes = False

    def forward(self, x):
        x = super().forward(x)
        x += 1  # makes a new Tensor
        return x.add_(1) if self.writes else x


def test_an_export_knows_no_updates(tmp_path):
    pytest.importorskip("onnx")
    model = Add()
    minigrad.export_onnx(model, tmp_path / "a.onnx", (1, 2))
    model.writes = True
    with pytest.raises(RuntimeError, match="add_: an update in place cannot be exported; make a new Tensor"):
        minigrad.export_onnx(model, tmp_path / "b.onnx", (1, 2))
