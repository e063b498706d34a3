"""The examples run, on few images."""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest

from minigrad import data

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def few_digits(monkeypatch):
    """Digits of which there are few, and no MNIST."""
    whole = data.digits
    few = lambda **options: tuple(part.subset(range(256)) for part in whole(**options))
    monkeypatch.setattr(data, "available", lambda name, folder=None: None)
    monkeypatch.setattr(data, "digits", few)


def test_train_mnist(capsys):
    spec = importlib.util.spec_from_file_location("train_mnist", EXAMPLES / "train_mnist.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    history = example.main(epochs=6, batch_size=32)
    assert history[-1]["test_accuracy"] > 0.5 and history[-1]["loss"] < history[0]["loss"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"test accuracy {100 * history[-1]['test_accuracy']:.2f} %"


def test_train_mnist_as_a_script(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_mnist.py", "--epochs", "1"])
    runpy.run_path(str(EXAMPLES / "train_mnist.py"), run_name="__main__")
    assert "epoch 1/1" in capsys.readouterr().out


def test_data_parallel(monkeypatch, capsys, tmp_path):
    hashes = []
    for words in (
        [],
        ["--checkpoints", str(tmp_path), "--every", "3", "--epochs", "1"],
        ["--checkpoints", str(tmp_path)],
    ):
        arguments = ["data_parallel.py", "--shards", "4", "--epochs", "2", "--optimizer", "adam", *words]
        monkeypatch.setattr(sys, "argv", arguments)
        runpy.run_path(str(EXAMPLES / "data_parallel.py"), run_name="__main__")
        out = capsys.readouterr().out
        assert "4 shards on 1 ranks (local)" in out
        hashes.append(out.splitlines()[-1])
    # The third run goes on where the second ended, from the last checkpoint in its middle.
    assert hashes[0] == hashes[2] != hashes[1] and hashes[0].startswith("weights hash ")


def test_every_example_is_run_here_and_listed():
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == {"train_mnist.py", "data_parallel.py"}
    assert all(name in (EXAMPLES / "README.md").read_text() for name in names)
