"""Weights of PyTorch's networks in minigrad's and back, by files."""

import numpy as np
import pytest

import minigrad
from minigrad import models

torch = pytest.importorskip("torch")


def twin(module):
    """A network of PyTorch's that is built alike, from the text of each layer."""
    if type(module).__name__ == "Sequential":
        return torch.nn.Sequential(*map(twin, module.children()))
    return eval(repr(module), {**vars(torch.nn)})


def outputs(theirs, ours, shape):
    images = np.random.default_rng(0).standard_normal((4, *shape)).astype(np.float32)
    with torch.no_grad(), minigrad.no_grad():
        return theirs.eval()(torch.from_numpy(images)).numpy(), ours.eval()(minigrad.tensor(images)).numpy()


def test_there_and_back(tmp_path):  # residual networks: tests/oracles/networks/images.py
    from safetensors.numpy import save_file
    from safetensors.torch import load_file as load_theirs
    from safetensors.torch import save_file as save_theirs

    minigrad.manual_seed(0)
    shape = (1, 28, 28)
    ours, other = models.build("lenet", shape), models.build("lenet", shape)
    theirs = twin(ours)
    save_theirs(theirs.state_dict(), tmp_path / "theirs.safetensors")
    assert not any(ours.load_state_dict(minigrad.load_weights(tmp_path / "theirs.safetensors")))
    np.testing.assert_allclose(*outputs(theirs, ours, shape), rtol=1e-4, atol=1e-5)
    packed = {key: np.ascontiguousarray(tensor.numpy()) for key, tensor in other.state_dict().items()}
    save_file(packed, tmp_path / "ours.safetensors")
    theirs.load_state_dict(load_theirs(tmp_path / "ours.safetensors"))
    np.testing.assert_allclose(*outputs(theirs, other, shape), rtol=1e-4, atol=1e-5)
