"""Updates in place beside PyTorch: the same text gives the same numbers in both, or is refused by both."""

import numpy as np
import pytest

import minigrad
from tests.core.test_in_place import REFUSED, UPDATES, X, Y
from tests.oracles.beside_torch import torch

NOT_THERE = {"x @= x.T @ x", "x[1:] = x[:-1]"}  # a new tensor; refused, as the memory of the two overlaps
TAKEN = {
    *("i.fill_(1.5)", "i[0] = 1.5", "i[0] = x[0, 0]", "y.add_(1)", "y[0] = 1", "y.zero_()", "x.add_(w)", "x[0] = w[0]"),
}


def run(lib, text):
    names = {"x": lib.tensor(X), "y": lib.tensor(Y), "w": lib.tensor(X, requires_grad=True), "i": lib.arange(3)}
    if text in REFUSED:
        names["y"] = names["w"] * 2
    exec(text, names)
    return names


@pytest.mark.parametrize("text", sorted(UPDATES.keys() - NOT_THERE))
def test_an_update(text):
    np.testing.assert_allclose(*(run(lib, text)["x"].numpy() for lib in (minigrad, torch)), rtol=2e-7, strict=True)


@pytest.mark.parametrize("text", sorted(REFUSED.keys() - TAKEN))
def test_what_is_refused(text):
    with pytest.raises((RuntimeError, TypeError, IndexError)):
        run(torch, text)
