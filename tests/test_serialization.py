"""save and load: structures of Tensors come back as they were; damage and pickles are refused."""

import io
import pickle

import numpy as np
import pytest

import minigrad
from minigrad import nn, optim


def test_what_is_saved_comes_back(tmp_path):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = optim.Adam(model.parameters())
    model(minigrad.randn(4, 2)).sum().backward()
    optimizer.step()
    half = minigrad.tensor([1.5, 2.0], dtype="bfloat16")
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "pair": (half, [None, "a"])}
    minigrad.save(saved | {7: np.float64(0.5)}, tmp_path / "model.pth")
    found = minigrad.load(tmp_path / "model.pth", map_location=minigrad.device("interpreter"))
    assert found["epoch"] == 3 and found[7] == 0.5 and found["pair"][1] == [None, "a"]
    assert found["pair"][0].dtype == minigrad.bfloat16 and found["pair"][0].device.type == "interpreter"
    other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    other.load_state_dict(found["model"])
    restored = optim.Adam(other.parameters())
    restored.load_state_dict(found["optimizer"])
    for key, value in model.state_dict().items():
        assert (other.state_dict()[key] == value).all()
    assert restored.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()
    minigrad.save(half, file := io.BytesIO())
    assert (minigrad.load(io.BytesIO(file.getvalue())) == half).all()


def test_a_file_is_no_pickle_because_of_the_size_of_its_header(tmp_path):
    found = set()
    for size in range(0, 256, 8):
        minigrad.save("a" * size, tmp_path / "text")
        found.add((tmp_path / "text").read_bytes()[0])
        assert minigrad.load(tmp_path / "text") == "a" * size
    assert {0x50, 0x80} <= found  # as a pickle begins


def test_what_cannot_be_saved_or_loaded_is_refused(tmp_path):
    file = tmp_path / "kept.pt"
    minigrad.save([1], file)
    with pytest.raises(TypeError, match=r"save: got a Linear, wanted .*; save its state_dict\(\)"):
        minigrad.save({"a": nn.Linear(1, 1)}, file)
    assert minigrad.load(file) == [1]
    file.write_bytes(file.read_bytes().replace(b"[1]", b"[2]"))
    with pytest.raises(ValueError, match=r"kept.pt is no file of minigrad.save: .* SHA-256"):
        minigrad.load(file)
    for content in (b"", b"Print a text", b'{"a": 1}, {"b"', b"\x93NUMPY\x01\x00v\x00{'descr'", b"0" * 8 + b"{"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="kept.pt is no file of minigrad.save: "):
            minigrad.load(file)
    np.savez(archive := tmp_path / "weights.npz", weight=np.ones(2))
    with pytest.raises(ValueError, match="weights.npz is no file .*a zip file; .* minigrad.load_weights reads it"):
        minigrad.load(archive)
    file.write_bytes(pickle.dumps({}))
    with pytest.raises(ValueError, match="it is a pickle"):
        minigrad.load(file)
