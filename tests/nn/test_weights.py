"""Weights from .safetensors and .npz files of other libraries, and from files that are none."""

import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

import minigrad
from minigrad import models, nn


def arrays():
    rng = np.random.default_rng(0)
    shapes = {"0.weight": (4, 2, 3, 3), "0.bias": (4,), "2.weight": (3, 4)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def network():
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Linear(4, 3, bias=False))


def write(path, found):
    (save_file if path.suffix == ".safetensors" else lambda found, path: np.savez(path, **found))(found, path)


@pytest.fixture(params=["weights.safetensors", "weights.npz"])
def path(request, tmp_path):
    return tmp_path / request.param


@pytest.mark.parametrize("before", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_weights_go_in(path, before):
    write(path, {before + name: array for name, array in arrays().items()})
    model = network()
    assert not any(model.load_state_dict(minigrad.load_weights(path)))
    for name, array in arrays().items():
        np.testing.assert_array_equal(model.state_dict()[name].numpy(), array)


def test_a_part_is_taken_by_its_prefix(path):
    write(path, {f"encoder.{name}": array for name, array in arrays().items()} | {"module.head": np.ones(3)})
    found = minigrad.load_weights(path, prefix="encoder.")
    assert found.keys() == arrays().keys()
    with pytest.raises(ValueError, match="no name that begins with 'decoder.', but .*encoder.0.weight"):
        minigrad.load_weights(path, "decoder.")


def test_all_that_does_not_fit_is_one_error(path):
    given = arrays()
    given["0.weight"] = given["0.weight"][:, :1]
    given["3.weight"] = given.pop("2.weight")
    write(path, given)
    model = network()
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError) as refused:
        model.load_state_dict(minigrad.load_weights(path))
    for part in ("0.weight has shape (4, 1, 3, 3), wanted (4, 2, 3, 3)", "missing 2.weight", "unexpected 3.weight"):
        assert part in str(refused.value)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])
    assert model.load_state_dict({"0.bias": minigrad.ones(4)}, strict=False).missing_keys == ["0.weight", "2.weight"]


def test_damaged_files(path):
    write(path, arrays())
    whole = path.read_bytes()
    np.save(path.with_suffix(".npy"), np.ones(3))
    alone = path.with_suffix(".npy").read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"no weights at all", b"\xff" * 100, alone):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"load_weights: .*weights\.\w+ cannot be read as"):
            minigrad.load_weights(path)


def test_one_flipped_bit_of_a_zip_is_seen(tmp_path):
    np.savez_compressed(tmp_path / "weights.npz", **arrays())
    whole = bytearray((tmp_path / "weights.npz").read_bytes())
    for at in (120, 200, 300):  # among the numbers
        whole[at] ^= 16
        (tmp_path / "weights.npz").write_bytes(whole)
        with pytest.raises(ValueError, match="cannot be read as .npz"):
            minigrad.load_weights(tmp_path / "weights.npz")
        whole[at] ^= 16


def test_files_that_could_run_code(tmp_path):
    np.savez(tmp_path / "objects.npz", **{"0.weight": np.array([{}, []], object)})
    with pytest.raises(ValueError, match="objects.npz cannot be read as .npz: .*allow_pickle"):
        minigrad.load_weights(tmp_path / "objects.npz")
    (tmp_path / "model.pt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"ends in '.pt', wanted .safetensors or .npz; what torch.save writes can run"):
        minigrad.load_weights(tmp_path / "model.pt")


def test_what_holds_no_weights(tmp_path):
    with pytest.raises(ValueError, match="none.npz is not a file"):
        minigrad.load_weights(tmp_path / "none.npz")
    with zipfile.ZipFile(tmp_path / "empty.npz", "w"):
        pass
    with pytest.raises(ValueError, match="no name that begins with '', but no names at all"):
        minigrad.load_weights(tmp_path / "empty.npz")
    np.savez(tmp_path / "words.npz", name=np.array(["a", "b"]))
    with pytest.raises(ValueError, match="words.npz cannot be read .*element type is <U1"):
        minigrad.load_weights(tmp_path / "words.npz")


@pytest.mark.parametrize("name", ["lenet", "digits-cnn"])
def test_a_model_comes_back(name, path):
    shape = (1, 28, 28) if name == "lenet" else (1, 8, 8)
    first, second = models.build(name, shape), models.build(name, shape)
    write(path, {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in first.state_dict().items()})
    second.load_state_dict(minigrad.load_weights(path))
    images = minigrad.rand(3, *shape)
    np.testing.assert_array_equal(first(images).detach().numpy(), second(images).detach().numpy())
