"""Weights from .safetensors and .npz files of other libraries, and from files that are none."""

import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

import minigrad
from minigrad import nn

NETWORK = nn.Sequential(nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Linear(4, 3, bias=False))
ARRAYS = {name: np.full(tensor.shape, i, np.float32) for i, (name, tensor) in enumerate(NETWORK.state_dict().items())}


def write(path, found):
    (save_file if path.suffix == ".safetensors" else lambda found, path: np.savez(path, **found))(found, path)


@pytest.fixture(params=["weights.safetensors", "weights.npz"])
def path(request, tmp_path):
    return tmp_path / request.param


def test_weights_go_in(path):
    """Also without what other libraries put before the names, and a part by its prefix."""
    for before in ("", "module."):
        write(path, {before + name: array for name, array in ARRAYS.items()})
        nn.init.zeros_(NETWORK[2].weight)
        assert not any(NETWORK.load_state_dict(minigrad.load_weights(path, before)))
        assert all(np.array_equal(NETWORK.state_dict()[name], array) for name, array in ARRAYS.items())
    write(path, {f"encoder.{name}": array for name, array in ARRAYS.items()} | {"module.head": np.ones(3)})
    assert minigrad.load_weights(path, prefix="encoder.").keys() == ARRAYS.keys()
    with pytest.raises(ValueError, match="no name that begins with 'decoder.', but .*encoder.0.weight"):
        minigrad.load_weights(path, "decoder.")


def test_damaged_files(path):
    write(path, ARRAYS)
    whole = path.read_bytes()
    np.save(path.with_suffix(".npy"), np.ones(3))
    flipped = bytearray(whole)
    flipped[200] ^= 16  # among the numbers: a zip has check sums
    alone = path.with_suffix(".npy").read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"\xff" * 100, alone, *[flipped] * (path.suffix == ".npz")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"load_weights: .*weights\.\w+ cannot be read as"):
            minigrad.load_weights(path)


def test_what_holds_no_weights(tmp_path):
    np.savez(tmp_path / "objects.npz", **{"0.weight": np.array([{}, []], object)})
    np.savez(tmp_path / "words.npz", name=np.array(["a", "b"]))
    (tmp_path / "model.pt").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "empty.npz", "w"):
        pass
    for name, words in {
        "objects.npz": "objects.npz cannot be read as .npz: .*allow_pickle",
        "model.pt": r"ends in '.pt', wanted .safetensors or .npz; what torch.save writes can run",
        "none.npz": "none.npz is not a file",
        "empty.npz": "no name that begins with '', but no names at all",
        "words.npz": "words.npz cannot be read .*element type is <U1",
    }.items():
        with pytest.raises(ValueError, match=words):
            minigrad.load_weights(tmp_path / name)
