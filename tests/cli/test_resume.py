"""minigrad train, interrupted in every way, loses nothing and is resumed to the bits of one that was not."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.cli import main
from minigrad.optim import Adam
from minigrad.train import Histograms, Interruption
from tests.cli.cli_runs import QUICK, elsewhere, environment, finished, lines_of, weights_of  # noqa: F401
from tests.train.checkpoint_parts import state_of

TRAIN, RESUME = ["train", *QUICK, "--out", "run"], ["train", "--no-report", "--resume", "run"]
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
MINIGRAD = [sys.executable, "-W", "error", "-m", "minigrad"]


def interrupted_after(patch, steps, times=1):
    """Press Ctrl-C during a given step, so many times."""
    step, count = Adam.step, []

    def counted(self, **numbers):
        count.append(1)
        for _ in range(times if len(count) == steps else 0):
            signal.raise_signal(signal.SIGINT)
        step(self, **numbers)

    patch.setattr(Adam, "step", counted)


def history_of(folder):
    rows = [json.loads(line) for line in (Path(folder) / "history.jsonl").read_text().splitlines()]
    return [row | {"images_per_second": None} for row in rows]


@pytest.mark.parametrize("steps", [1, 23, 40])
def test_interrupted_and_resumed_equals_uninterrupted(finished, monkeypatch, capsys, steps):
    """23 steps are an epoch, so this is within the first, at its end, and in the second."""
    with monkeypatch.context() as patch:
        interrupted_after(patch, steps)
        assert main(TRAIN) == 130
    assert f"interrupted at step {steps}; go on with: minigrad train --resume run" in capsys.readouterr().out
    assert not Path("run/result.json").exists() and main(RESUME) == 0
    assert f"run: run, from step {steps} on" in capsys.readouterr().out
    for name in ("last", "best"):
        assert weights_of("run", name) == weights_of(finished, name)
    assert history_of("run") == history_of(finished)
    assert main(RESUME) == 0, "a finished run"
    lines = lines_of(capsys)
    assert lines[-1].startswith("test accuracy ") and not any(line.startswith("epoch") for line in lines)


def test_a_second_signal_quits_and_handlers_come_back(finished, monkeypatch):
    def gone(*arguments):
        raise BrokenPipeError  # nobody reads the note

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch, Interruption() as interruption, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "write", gone)
        assert not interruption.stop(None)
        signal.raise_signal(signal.SIGTERM)
        assert interruption.stop(None)
        signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    with monkeypatch.context() as patch:
        interrupted_after(patch, 1, times=2)
        assert main(TRAIN) == 130
    assert main(RESUME) == 0 and weights_of("run") == weights_of(finished)


@pytest.mark.skipif(os.name != "posix", reason="signals to other processes are POSIX")
def test_sigterm_ends_the_process_with_a_checkpoint():
    command = [*MINIGRAD, *TRAIN, "--epochs", "100000"]
    with subprocess.Popen(command, env=environment(), **PIPES) as process:
        for line in process.stdout:
            if line.startswith("epoch      2/"):
                process.send_signal(signal.SIGTERM)
                break
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0  # systems take another number for a failure
    assert "stopping after this step" in err and "Traceback" not in err
    step = int(re.search(r"interrupted at step (\d+); go on with: minigrad train --resume run", out)[1])
    assert state_of(Path("run/last"))["history"]["steps"] == step >= 46


def test_a_training_that_nobody_reads_can_be_resumed(finished):
    """As in `minigrad train | head -3`."""
    with subprocess.Popen([*MINIGRAD, *TRAIN], env=environment(), **PIPES) as process:
        for _ in range(3):
            process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, "")
    assert main(RESUME) == 0 and weights_of("run") == weights_of(finished)


@pytest.mark.deep
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that is always full is Linux's")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as file:
        full = environment() | {"PYTHONUNBUFFERED": ""}
        process = subprocess.run([*MINIGRAD, "info"], env=full, **PIPES | {"stdout": file})
    assert process.returncode == 1 and re.fullmatch(r"minigrad info: error: .*\n", process.stderr)


@pytest.mark.parametrize("options", ["--save-every 10", "--optimizer sgd --lr 1e30 --save-every 1"])
def test_a_loss_or_weights_that_are_not_finite_are_not_saved(options, monkeypatch, capsys):
    """The first: an update before the loss shows it has made the weights so."""
    spoiled = "sgd" not in options

    def spoil(self, history):
        if spoiled and history.steps == 30:
            next(iter(self.model.parameters())).array[0, 0] = float("nan")

    monkeypatch.setattr(Histograms, "on_step", spoil)
    assert main([*TRAIN, *options.split()]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    said = r"minigrad train: error: .* step (\d+).*(lower the learning|not saved).* run/last holds step (\d+); minigrad"
    failed, _, safe = re.search(said, error).groups()
    assert int(safe) < int(failed) and (safe == "23" or not spoiled)
    assert main(["evaluate", "run"]) == 0  # its weights are finite
