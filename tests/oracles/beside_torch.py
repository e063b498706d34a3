"""PyTorch, and how numbers of both libraries are compared. A test file that imports this is skipped without PyTorch."""

import numpy as np
import pytest

from minigrad import Tensor

torch = pytest.importorskip("torch")

__all__ = ["close", "numbers", "torch"]


def numbers(value):
    """The elements of a Tensor of either library, or of an array."""
    if isinstance(value, torch.Tensor):
        return value.numpy(force=True)
    return np.asarray(value.detach() if isinstance(value, Tensor) else value)


def close(ours, theirs, precision=1e-7, what=""):
    """The same shape, and numbers that differ by less than a share of themselves, or of the largest."""
    ours, theirs = numbers(ours), numbers(theirs)
    assert ours.shape == theirs.shape, what
    scale = np.abs(theirs).max(initial=1e-3, where=np.isfinite(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=precision, atol=precision * scale, err_msg=what)
