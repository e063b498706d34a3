"""Updates in place beside PyTorch: the same text gives the same numbers in both, or is refused by both."""

import numpy as np
import pytest

import minigrad
from tests.core.test_in_place import REFUSED, UPDATES, X, Y

torch = pytest.importorskip("torch")

NOT_THERE = {"x @= x.T @ x", "x[1:] = x[:-1]"}  # a new tensor; refused, as the memory of the two overlaps
TAKEN = {
    *("i.fill_(1.5)", "i[0] = 1.5", "i[0] = x[0, 0]", "y.add_(1)", "y[0] = 1", "y.zero_()", "x.add_(w)", "x[0] = w[0]"),
}

PROGRAMS = {
    "by way of data": """
((w * x) ** 2).sum().backward()
w.data -= 0.01 * w.grad.data
w.data += -0.01 * w.grad
w.data.add_(w.grad, alpha=-0.01).clamp_(-0.5, 0.5)
w.grad.data.mul_(0.5)
values, places = lib.max(w.data, 1)
found = [w, w.grad, values, places, lib.tensor(w.data.numpy())]
""",
    "averages of weights and of a batch": """
average, mean = w.detach().clone(), lib.zeros(4)
for _ in range(3):
    with lib.no_grad():
        w += x
    average.mul_(0.9).add_(w.detach(), alpha=0.1)
    mean.copy_(0.9 * mean + 0.1 * x.mean(0))
found = [average, mean]
""",
    "a residual, and a loss that is added up": """
y, loss = w * x, lib.zeros(())
out = y - 1
out += x
loss += out.sum()
loss += (w**2).sum()
loss.backward()
found = [out, loss, w.grad]
""",
}


def run(lib, text):
    from_numpy = lib.tensor
    names = {"lib": lib, "x": from_numpy(X), "y": from_numpy(Y), "w": from_numpy(X, requires_grad=True)}
    names["i"] = lib.arange(3)
    if text in REFUSED:
        names["y"] = names["w"] * 2
    exec(text, names)
    return names


@pytest.mark.parametrize("text", sorted(UPDATES.keys() - NOT_THERE))
def test_an_update(text):
    np.testing.assert_allclose(*(run(lib, text)["x"].numpy() for lib in (minigrad, torch)), rtol=2e-7, strict=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name):
    ours, theirs = (run(lib, PROGRAMS[name])["found"] for lib in (minigrad, torch))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", sorted(REFUSED.keys() - TAKEN))
def test_what_is_refused(text):
    with pytest.raises((RuntimeError, TypeError, IndexError)):
        run(torch, text)
