"""What the tests of the command share."""

import json
import os
import sys
from pathlib import Path

import pytest

from minigrad.cli import main
from tests.train.checkpoint_parts import tensors_of

QUICK = ["--data", "digits", "--model", "mlp", "--epochs", "2", "--batch-size", "64"]
QUICK += ["--no-report"]  # tests/draw/test_report.py has those


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs go to a folder of the test; no MNIST of this machine is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINIGRAD_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of two epochs."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(["train", *QUICK, "--out", str(folder)]) == 0
    return folder


def lines_of(capsys):
    return capsys.readouterr().out.splitlines()


def read(path):
    return json.loads(Path(path).read_text())


def weights_of(folder, name="last"):
    """The bytes of all arrays of the newest checkpoint: of weights, of optimiser and schedule."""
    return {tensor: array.tobytes() for tensor, array in tensors_of(Path(folder) / name).items()}


def environment():
    paths = os.pathsep.join(path for path in sys.path if path)
    return os.environ | {"PYTHONPATH": paths, "MINIGRAD_DATA": "", "PYTHONUNBUFFERED": "1"}
