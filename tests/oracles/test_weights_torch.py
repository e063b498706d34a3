"""Weights from PyTorch's files; arrays by DLPack, which both see. Weights to PyTorch: the example export_weights."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn
from tests.oracles.beside_torch import close, torch


def network(nn):
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(384, 3))


def test_weights_of_pytorch(tmp_path):
    from safetensors.torch import save_file

    images = np.random.default_rng(0).standard_normal((4, 1, 8, 8)).astype(np.float32)
    ours, theirs = network(nn), network(torch.nn)
    theirs(torch.from_numpy(images))  # gives batch norm its statistics
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    assert not any(ours.load_state_dict(minigrad.load_weights(tmp_path / "theirs.safetensors")))
    close(ours.eval()(Tensor(images)), theirs.eval()(torch.from_numpy(images)), 1e-5)


@pytest.mark.parametrize("name", ["float16", "float32", "int64", "bool"])
def test_dlpack_both_ways_without_a_copy(name):
    theirs = torch.ones((2, 3, 4, 5), dtype=getattr(torch, name)).to(memory_format=torch.channels_last)
    ours = minigrad.from_dlpack(theirs)
    assert (str(ours.dtype), ours.shape) == (name, (2, 3, 4, 5)) and ours.array.ctypes.data == theirs.data_ptr()
    theirs[0, 0, 0, 1] = 0
    assert not ours[0, 0, 0, 1].item()
    again = torch.from_dlpack(ours)
    again[1, 1] = 0
    assert again.stride() == theirs.stride() and again.data_ptr() == theirs.data_ptr() and not theirs[1, 1].any()
    with pytest.raises(BufferError, match="lies backwards"):  # PyTorch would end the process
        torch.from_dlpack(Tensor(np.arange(4.0)[::-1]))
