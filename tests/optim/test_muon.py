"""Muon: its iteration beside the definition in NumPy, 16 bits, graphs. Steps beside PyTorch's: tests/oracles."""

import numpy as np
import pytest

from minigrad import Tensor, nn, optim
from minigrad.graph import capture
from minigrad.optim.rules import orthogonalized
from tests.device.stand_in_gpus import gpus
from tests.optim.optim_parts import arrays, give_gradients, parameters, same


def definition(m, steps=5, eps=1e-7):
    """The iteration in NumPy, without transposing."""
    x = m / max(np.linalg.norm(m), eps)
    for _ in range(steps):
        x = 3.4445 * x - 4.775 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x
    return x


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (4, 7), (7, 4), (16, 2)])
def test_singular_values_come_near_one(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    found = orthogonalized(Tensor(matrix)).numpy()
    np.testing.assert_allclose(found, definition(matrix), rtol=1e-9, atol=1e-12)
    sizes = np.linalg.svd(found, compute_uv=False)
    assert (0.6 < sizes).all() and (sizes < 1.25).all()
    assert not orthogonalized(Tensor(np.zeros(shape))).numpy().any()


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_steps_in_16_bits_are_those_of_float32_rounded(half):
    """As in mixed precision: a scale is taken out first, and a step with what is not finite changes nothing."""
    params, others = parameters(half)[:2], parameters()[:2]
    first, second = optim.Muon(params, lr=0.1), optim.Muon(others, lr=0.1)
    give_gradients(params, 0), give_gradients(others, 0)
    first.step(found_inf=np.ones(1, np.float32))
    assert same(arrays(params), arrays(parameters(half)[:2]))
    for parameter in params:
        parameter.grad = parameter.grad * 8
    first.step(scale=np.full(1, 1 / 8, np.float32)), second.step()
    for one, two in zip(arrays(params), arrays(others), strict=True):
        np.testing.assert_allclose(one.astype(float), two, rtol=2e-2, atol=2e-2)


@pytest.mark.deep
def test_a_graph_repeats_steps():
    """Rates are heard by each replay; where another option changes, the graph is made anew."""

    def trained(wrap):
        w = nn.Parameter(np.ones((2, 3), np.float32)).to("cuda").detach().requires_grad_()
        optimizer = optim.Muon([w], lr=0.5)

        @wrap
        def step(x):
            optimizer.zero_grad()
            ((w - x) ** 2).sum().backward()
            optimizer.step()
            return w.sum()

        found = []
        for count in range(5):
            x = Tensor(np.full((2, 3), float(count), np.float32)).to("cuda")
            optimizer.param_groups[0]["lr"] *= 0.9
            optimizer.param_groups[0]["momentum"] = 0.95 if count < 3 else 0.5
            found.append(step(x).item())
        return found, w.tolist()

    with gpus(1):
        assert trained(capture) == trained(lambda function: function)
