"""minigrad train, interrupted and resumed."""
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
from minigrad.train import Interruption
from tests.cli.cli_runs import QUICK, RESUME, elsewhere, environment, finished, lines_of, weights_of  # noqa: F401
from tests.train.checkpoint_parts import state_of

TRAIN = ["train", *QUICK, "--out", "run"]


def interrupted_after(monkeypatch, steps):
    """Press Ctrl-C during a given step."""
    step, count = Adam.step, []

    def counted(self, **numbers):
        count.append(1)
        if len(count) == steps:
            signal.raise_signal(signal.SIGINT)
        step(self, **numbers)

    monkeypatch.setattr(Adam, "step", counted)


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
    assert not Path("run/result.json").exists() and main([*RESUME, "run"]) == 0
    assert f"run: run, from step {steps} on" in capsys.readouterr().out
    for name in ("last", "best"):
        assert weights_of("run", name) == weights_of(finished, name)
    assert history_of("run") == history_of(finished)
    assert main([*RESUME, "run"]) == 0, "a finished run"
    lines = lines_of(capsys)
    assert lines[-1].startswith("test accuracy ") and not any(line.startswith("epoch") for line in lines)


def test_a_second_signal_quits_and_handlers_come_back(monkeypatch):
    def gone(*arguments):
        raise BrokenPipeError  # nobody reads the note

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(os, "write", gone)
    with Interruption() as interruption, pytest.raises(KeyboardInterrupt):
        assert not interruption.stop(None)
        signal.raise_signal(signal.SIGTERM)
        assert interruption.stop(None)
        signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_quit_at_once_in_the_first_step_can_be_resumed(finished, monkeypatch):
    def quit_at_once(self, **numbers):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Adam, "step", quit_at_once)
        assert main(TRAIN) == 130
    assert main([*RESUME, "run"]) == 0
    assert weights_of("run") == weights_of(finished)


@pytest.mark.skipif(os.name != "posix", reason="signals to other processes are POSIX")
def test_sigterm_ends_the_process_with_a_checkpoint():
    command = [sys.executable, "-W", "error", "-m", "minigrad", *TRAIN, "--epochs", "100000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    with subprocess.Popen(command, **pipes) as process:
        for line in process.stdout:
            if line.startswith("epoch      2/"):
                process.send_signal(signal.SIGTERM)
                break
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0  # systems take another number for a failure
    assert "stopping after this step" in err and "Traceback" not in err
    step = int(re.search(r"interrupted at step (\d+); go on with: minigrad train --resume run", out)[1])
    assert state_of(Path("run/last"))["history"]["steps"] == step >= 46
