"""DLPack with PyTorch: what one writes the other sees."""

import gc

import numpy as np
import pytest

import minigrad
from minigrad import nn

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
def test_both_ways_without_a_copy(name):
    theirs = torch.ones((2, 3), dtype=getattr(torch, name))
    ours = minigrad.from_dlpack(theirs)
    assert str(ours.dtype) == name and ours.array.ctypes.data == theirs.data_ptr()
    theirs[0, 0] = 0
    assert not ours[0, 0].item()
    back = torch.from_dlpack(minigrad.zeros(2, 3, dtype=name))
    assert back.dtype == theirs.dtype and not back.any()
    again = torch.from_dlpack(ours)
    again[1, 1] = 0
    assert again.data_ptr() == theirs.data_ptr() and not theirs[1, 1]


def test_channels_last_stays_channels_last():
    theirs = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    ours = minigrad.from_dlpack(theirs)
    assert ours.shape == (2, 3, 4, 5) and ours.array.strides == tuple(4 * step for step in theirs.stride())
    out = nn.Conv2d(3, 4, 3)(ours).detach()
    assert torch.from_dlpack(out).is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(torch.from_dlpack(out).numpy(), out.numpy())


def test_memory_outlives_its_first_owner():
    for make, other in ((torch.full, minigrad), (minigrad.full, torch)):
        theirs = make((1000,), 3.0)
        ours = other.from_dlpack(theirs)
        del theirs
        gc.collect()
        others = [make((1000,), 0.0) for _ in range(8)]
        assert (ours == 3).all() and len(others) == 8


def test_refusals():
    with pytest.raises(BufferError, match="gradient"):
        minigrad.from_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match="lies backwards"):  # PyTorch would end the process
        torch.from_dlpack(minigrad.Tensor(np.arange(4.0)[::-1]))
