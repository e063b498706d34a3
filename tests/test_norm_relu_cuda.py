"""Gradients of batch normalisation behind a ReLU on CUDA: the mask is part of both passes, and changes no bit."""

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.norm import cuda

from .cases.norm import EPS
from .kernel_runs import on_host, same_bits
from .test_norm_cuda import interpreted_space, launched, whole_sectors

pytestmark = pytest.mark.deep


def masked_grads(shape, kind, wanted, rung):
    """(g, out, x, the launches, (dx, dw, db) and the masked g if it is wanted) of gradients behind a ReLU."""
    rng, columns = np.random.default_rng(3), shape[1]
    g, x, out = (interpreter.array(rng.standard_normal(shape).astype(kind)) for _ in range(3))
    out[...] = np.maximum(out, np.zeros_like(out))
    out[0, 0] = np.nan
    vectors, results = [x, *unit_vectors(columns, kind)], gradient_arrays(shape, kind)
    masked = interpreter.empty(shape, x.dtype) if wanted else None
    space = interpreted_space("batch_norm_grads", shape)
    launches = launched(lambda: cuda.batch_norm_grads(g, *vectors, True, EPS, out, *results, masked, space, rung))
    return (g, out, x), launches, [*results, *([masked] if wanted else [])]


def unit_vectors(columns, kind):
    """Mean, variance and weight of channels."""
    return [interpreter.array(np.linspace(1, 2, columns, dtype=kind) - k / 4) for k in range(3)]


def gradient_arrays(shape, kind):
    """dx, dw and db."""
    return interpreter.empty(shape, kind), *(interpreter.empty(shape[1], kind) for _ in range(2))


@pytest.mark.parametrize(
    "rung, shape, kind",
    [("plain", (70, 17), np.float32), ("plain", (70, 17), np.float64), ("vector", (1100, 12), np.float32)],
)
@pytest.mark.parametrize("wanted", [False, True])
def test_gradients_behind_a_relu_are_those_of_the_masked_gradient(rung, shape, kind, wanted):
    """Bit for bit, although the mask is part of both passes; the lines of the vector rung come in twos and singly."""
    (g, out, x), launches, found = masked_grads(shape, kind, wanted, rung)
    names = [name for name, _ in launches]
    assert [name.split("_")[1] for name in names] == ["products", "total", "grads"]
    masked = np.where(np.array(out, np.float64) <= 0, 0, np.array(g, np.float64)).astype(kind)
    results = gradient_arrays(shape, kind)
    space, vectors = interpreted_space("batch_norm_grads", shape), unit_vectors(shape[1], kind)
    cuda.batch_norm_grads(interpreter.array(masked), x, *vectors, True, EPS, None, *results, None, space, rung)
    same_bits([on_host(array) for array in found], [*map(on_host, results), *([masked] if wanted else [])])


@pytest.mark.parametrize("wanted", [False, True])
def test_a_relu_costs_gradients_no_pass_of_its_own(wanted):
    """One more array is read; the masked g, where it is wanted, is written once and then read in the place of g."""
    (g, *_), ((_, sums), _, (_, last)), _ = masked_grads((1024, 16), np.float32, wanted, None)
    width = g.nbytes
    assert {name: sums.bytes_loaded[name] for name in ("g", "x", "out")} == dict.fromkeys(("g", "x", "out"), width)
    assert whole_sectors(sums, "g", "x", "out") and sums.bytes_stored.get("masked", 0) == (width if wanted else 0)
    assert last.bytes_loaded["g"] == last.bytes_loaded["x"] == last.bytes_stored["dx"] == width
    assert last.bytes_loaded.get("out", 0) == (0 if wanted else width) and whole_sectors(last, "g", "x", "dx")
