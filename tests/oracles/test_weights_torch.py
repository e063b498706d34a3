"""Weights of PyTorch's networks in minigrad's and back, by files; arrays by DLPack, which both see."""

import gc

import numpy as np
import pytest

import minigrad
from minigrad import models, nn
from tests.oracles.beside_torch import close, torch

# ---- files -----------------------------------------------------------------------------------------------------------


def twin(module):
    """A network of PyTorch's that is built alike, from the text of each layer."""
    if type(module).__name__ == "Sequential":
        return torch.nn.Sequential(*map(twin, module.children()))
    return eval(repr(module), {**vars(torch.nn)})


def check_alike(theirs, ours, shape):
    images = np.random.default_rng(0).standard_normal((4, *shape)).astype(np.float32)
    with torch.no_grad(), minigrad.no_grad():
        close(ours.eval()(minigrad.tensor(images)), theirs.eval()(torch.from_numpy(images)), 1e-5)


def test_there_and_back(tmp_path):  # residual networks: tests/oracles/networks/images.py
    from safetensors.numpy import save_file
    from safetensors.torch import load_file as load_theirs
    from safetensors.torch import save_file as save_theirs

    shape = (1, 28, 28)
    ours, other = models.build("lenet", shape), models.build("lenet", shape)
    theirs = twin(ours)
    save_theirs(theirs.state_dict(), tmp_path / "theirs.safetensors")
    assert not any(ours.load_state_dict(minigrad.load_weights(tmp_path / "theirs.safetensors")))
    check_alike(theirs, ours, shape)
    packed = {key: np.ascontiguousarray(tensor.numpy()) for key, tensor in other.state_dict().items()}
    save_file(packed, tmp_path / "ours.safetensors")
    theirs.load_state_dict(load_theirs(tmp_path / "ours.safetensors"))
    check_alike(theirs, other, shape)


# ---- DLPack ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
def test_dlpack_both_ways_without_a_copy(name):
    theirs = torch.ones((2, 3), dtype=getattr(torch, name))
    ours = minigrad.from_dlpack(theirs)
    assert str(ours.dtype) == name and ours.array.ctypes.data == theirs.data_ptr()
    theirs[0, 0] = 0
    assert not ours[0, 0].item()
    again = torch.from_dlpack(ours)
    again[1, 1] = 0
    assert again.dtype == theirs.dtype and again.data_ptr() == theirs.data_ptr() and not theirs[1, 1]


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


def test_what_dlpack_refuses():
    with pytest.raises(BufferError, match="gradient"):
        minigrad.from_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match="lies backwards"):  # PyTorch would end the process
        torch.from_dlpack(minigrad.Tensor(np.arange(4.0)[::-1]))
