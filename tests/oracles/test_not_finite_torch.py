"""NaN and infinity in the input of every op go where PyTorch's go: into the same elements, and no further."""

import numpy as np
import pytest

from minigrad.core.errors import MinigradError
from tests.op_cases import Draw, all_ops
from tests.oracles.test_ops_torch import flat, wrap_torch
from tests.test_ops import results, wrap

torch = pytest.importorskip("torch")

ROWS = [
    pytest.param(op, sample, id=f"{op.name}{sample}")
    for op in all_ops()
    for sample in op.samples[:2]
    if not sample.random and any(isinstance(x, Draw) and x.grad and np.prod(x.shape) for x in sample.args)
]


def spoiled(wrapped, value):
    """A wrap that puts the value into the first floating array that comes."""
    seen = []

    def wrap(array, wants_gradient):
        array = np.array(array)
        if array.dtype.kind == "f" and array.size and not seen:
            array.flat[array.size // 2] = value
            seen.append(array)
        return wrapped(array, wants_gradient)

    return wrap


def classes(array):
    """Where an array is finite (0), infinite (1, -1) or NaN (2)."""
    array = np.asarray(array, np.float64)
    return np.where(np.isnan(array), 2, np.where(np.isinf(array), np.sign(array), 0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("op, sample", ROWS)
def test_not_finite_like_pytorch(op, sample, value):
    args, kwargs = sample.draw(spoiled(wrap, value))
    torch_args, torch_kwargs = sample.draw(spoiled(wrap_torch, value))
    try:
        theirs = flat([op.counterpart(torch)(*torch_args, **torch_kwargs)])
    except RuntimeError:  # of a number that is no probability
        with pytest.raises(MinigradError):
            results(op, args, kwargs)
        return
    if (op.name, value) == ("binary_cross_entropy_with_logits", -np.inf):  # a row of the page of differences
        assert results(op, args, kwargs)[0].item() == np.inf and theirs[0].isnan()
        return
    for ours, wanted in zip(results(op, args, kwargs), theirs, strict=True):
        ours, wanted = ours.detach().numpy(), wanted.detach().numpy()
        np.testing.assert_array_equal(classes(ours), classes(wanted))
        finite = np.isfinite(np.asarray(wanted, np.float64))
        np.testing.assert_allclose(ours[finite], wanted[finite], rtol=1e-7, atol=1e-7)
