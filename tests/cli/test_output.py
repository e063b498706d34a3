"""Where the output of the command goes nowhere, or cannot be written: it stops, says so in one line, loses nothing."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import os
import re
import subprocess
import sys

import pytest

from minigrad.cli import main
from minigrad.train import Histograms
from tests.cli.cli_runs import QUICK, RESUME, elsewhere, environment, finished, weights_of  # noqa: F401

MINIGRAD = [sys.executable, "-W", "error", "-m", "minigrad"]
TRAIN = ["train", *QUICK, "--out", "run"]


def test_a_training_that_nobody_reads_can_be_resumed(finished):
    """As in `minigrad train | head -3`."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    with subprocess.Popen([*MINIGRAD, *TRAIN], **pipes) as process:
        for _ in range(3):
            process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, "")
    assert main([*RESUME, "run"]) == 0
    assert weights_of("run") == weights_of(finished)


@pytest.mark.deep
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that is always full is Linux's")
def test_a_full_disk_is_one_line():
    full = environment() | {"PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as file:
        process = subprocess.run([*MINIGRAD, "info"], stdout=file, stderr=subprocess.PIPE, text=True, env=full)
    assert process.returncode == 1
    assert process.stderr.startswith("minigrad info: error: ") and len(process.stderr.splitlines()) == 1


def test_a_loss_that_is_not_finite_says_what_is_safe(capsys):
    assert main([*TRAIN, "--optimizer", "sgd", "--lr", "1e30", "--save-every", "1"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    said = r"minigrad train: error: .* step (\d+).*lower the learning rate.* run/last holds step (\d+); minigrad train"
    failed, safe = map(int, re.search(said, error).groups())
    assert safe < failed
    assert main(["evaluate", "run"]) == 0  # its weights are finite


def test_weights_that_are_not_finite_are_not_saved(monkeypatch, capsys):
    """The update before the loss shows it has made them so."""

    def spoil(self, history):
        if history.steps == 30:
            next(iter(self.model.parameters())).array[0, 0] = float("nan")

    monkeypatch.setattr(Histograms, "on_step", spoil)
    assert main([*TRAIN, "--save-every", "10"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert "1.weight is not finite after step 30, so that is not saved; run/last holds step 23; " in error
    assert main(["evaluate", "run"]) == 0
