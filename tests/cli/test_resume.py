"""minigrad train, interrupted and resumed."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from minigrad.cli import main
from minigrad.train import Interruption
from tests.cli.cli_runs import QUICK, RESUME, elsewhere, environment, finished, lines_of, weights_of  # noqa: F401
from tests.train.checkpoint_parts import state_of


def interrupted_after(monkeypatch, steps):
    """Press Ctrl-C during a given step."""
    from minigrad.optim import Adam

    step, count = Adam.step, []

    def counted(self, **numbers):
        count.append(1)
        if len(count) == steps:
            signal.raise_signal(signal.SIGINT)
        step(self, **numbers)

    monkeypatch.setattr(Adam, "step", counted)


@pytest.mark.parametrize("steps", [1, 22, 23, 24, 40])
def test_interrupted_and_resumed_equals_uninterrupted(finished, tmp_path, monkeypatch, capsys, steps):
    """23 steps are an epoch, so this is within the first, at its end, and in the second."""
    with monkeypatch.context() as patch:
        interrupted_after(patch, steps)
        assert main(["train", *QUICK, "--out", "run"]) == 130
    printed = capsys.readouterr()
    assert f"interrupted at step {steps}; go on with: minigrad train --resume run" in printed.out
    assert not (tmp_path / "run/result.json").exists()
    assert main([*RESUME, "run"]) == 0
    assert f"run: run, from step {steps} on" in capsys.readouterr().out
    assert weights_of("run") == weights_of(finished)
    assert weights_of("run", "best") == weights_of(finished, "best")
    histories = [
        [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "run", finished)
    ]
    for row in (*histories[0], *histories[1]):
        del row["images_per_second"]
    assert histories[0] == histories[1]


def test_dropout_and_augmentation_continue_bit_for_bit(tmp_path, monkeypatch):
    command = ["train", "--data", "digits", "--model", "mnist-net", "--batch-size", "359", "--epochs", "2"]
    command += ["--augment", "--no-new-writers", "--threads", "1", "--accumulate", "3", "--no-report"]
    assert main([*command, "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        interrupted_after(patch, 3)
        assert main([*command, "--out", "run"]) == 130
    assert main([*RESUME, "run"]) == 0
    assert weights_of("run") == weights_of("whole")


def test_a_finished_run_can_be_resumed(finished, capsys):
    before = weights_of(finished)
    (finished / ".partial-7-history.csv").write_text("of a process that was killed")
    assert main([*RESUME, str(finished)]) == 0
    lines = lines_of(capsys)
    assert lines[-1].startswith("test accuracy ") and not any(line.startswith("epoch") for line in lines)
    assert weights_of(finished) == before and not list(finished.glob(".partial-*"))


def test_interruption_during_the_second_training(tmp_path, monkeypatch, capsys):
    arguments = [word for word in QUICK if word != "--no-new-writers"]
    with monkeypatch.context() as patch:
        interrupted_after(patch, 50)
        assert main(["train", *arguments, "--out", "run"]) == 130
    assert not (tmp_path / "run/result.json").exists()
    assert main([*RESUME, "run"]) == 0
    assert "new_writers" in json.loads((tmp_path / "run/result.json").read_text())


def test_second_signal_quits_and_handlers_come_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interruption() as interruption, pytest.raises(KeyboardInterrupt):
        assert not interruption.stop(None)
        signal.raise_signal(signal.SIGTERM)
        assert interruption.stop(None)
        signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_counts_where_nobody_reads_the_note(monkeypatch):
    def gone(*arguments):
        raise BrokenPipeError

    with Interruption() as interruption:
        monkeypatch.setattr(os, "write", gone)
        signal.raise_signal(signal.SIGINT)
        assert interruption.stop(None)


def test_quit_at_once_in_the_first_step_can_be_resumed(finished, monkeypatch):
    from minigrad.optim import Adam

    def quit_at_once(self, **numbers):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Adam, "step", quit_at_once)
        assert main(["train", *QUICK, "--out", "run"]) == 130
    assert main([*RESUME, "run"]) == 0
    assert weights_of("run") == weights_of(finished)


def test_outside_the_main_thread_signals_are_left_alone():
    results = []
    thread = threading.Thread(target=lambda: results.append(main(["train", *QUICK, "--out", "run"])))
    thread.start()
    thread.join()
    assert results == [0]


@pytest.mark.skipif(os.name != "posix", reason="signals to other processes are POSIX")
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_the_process_with_a_checkpoint(tmp_path, number, code):
    command = [sys.executable, "-W", "error", "-m", "minigrad", "train", *QUICK, "--epochs", "100000"]
    with subprocess.Popen(
        [*command, "--out", "run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        for line in process.stdout:
            if line.startswith("epoch      2/"):
                process.send_signal(number)
                break
        out, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert "stopping after this step" in err and "Traceback" not in err
    step = int(re.search(r"interrupted at step (\d+); go on with: minigrad train --resume run", out)[1])
    assert state_of(tmp_path / "run/last")["history"]["steps"] == step >= 46


def test_a_loss_that_is_not_finite_ends_with_an_error(tmp_path, capsys):
    assert main(["train", *QUICK, "--optimizer", "sgd", "--lr", "1e30", "--out", "run"]) == 1
    error = capsys.readouterr().err
    assert re.search(r"error: fit: the loss is (nan|inf) at step \d+; lower the learning rate", error)
