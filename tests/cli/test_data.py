"""minigrad train: where its data come from."""

import gzip
import struct

import numpy as np
import pytest

from minigrad.cli import main
from minigrad.data import digits
from tests.cli.cli_runs import elsewhere, lines_of  # noqa: F401


def idx(array):
    kind = {"uint8": 8}[array.dtype.name]
    head = struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


@pytest.fixture
def small_mnist(tmp_path):
    """A folder with few records in MNIST's files."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, whole in zip(("train", "t10k"), digits(size=28), strict=True):
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(idx(whole.images[:100, 0].copy()))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(idx(whole.labels[:100].astype(np.uint8)))
    return folder


def test_auto_takes_digits_where_mnist_is_not_and_says_so(capsys):
    assert main(["train", "--model", "mlp", "--epochs", "1", "--no-new-writers", "--no-report", "--out", "run"]) == 0
    lines = lines_of(capsys)
    assert lines[0].startswith("data auto: MNIST is not on disk: the digits")
    assert lines[1].startswith("data: digits, 1438 training and 359 test images")


def test_auto_takes_mnist_where_it_is_and_says_so(small_mnist, capsys):
    words = f"train --data-dir {small_mnist} --epochs 1 --batch-size 50 --no-report --out run"
    assert main(words.split()) == 0
    out = lines_of(capsys)
    assert out[0] == f"data auto: MNIST was found in {small_mnist}"
    assert "mnist, 100 training and 100 test images" in out[1] and "not the published file" in out[1]
    assert out[2] == "model: keras-cnn, 121,930 parameters, float32"
    assert main(["evaluate", "run"]) == 0
    assert lines_of(capsys)[-1] == out[-1]


def test_mnist_without_a_network_is_one_line(tmp_path, capsys, monkeypatch):
    import pooch

    def offline(*arguments, **options):
        raise OSError("no route to host")

    monkeypatch.setattr(pooch, "retrieve", offline)
    assert main(["train", "--data", "mnist", "--out", "run"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "train-images-idx3-ubyte.gz" in error and "--data digits" in error
    assert not (tmp_path / "run").exists()


def test_auto_never_downloads(monkeypatch):
    import pooch

    monkeypatch.setattr(pooch, "retrieve", lambda *a, **k: pytest.fail("a download was tried"))
    assert main(["train", "--model", "mlp", "--epochs", "1", "--no-new-writers", "--no-report", "--out", "run"]) == 0


def test_data_error_is_a_refusal(small_mnist, capsys):
    (small_mnist / "t10k-labels-idx1-ubyte.gz").write_bytes(b"x")
    assert main(["train", "--data", "mnist", "--data-dir", str(small_mnist), "--out", "run"]) == 2
    assert "t10k-labels" in capsys.readouterr().err
