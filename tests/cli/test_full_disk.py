"""Trainings whose files cannot be written: they stop, say so in one line, and what was written stays whole."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import contextlib
import errno
import os
import re
import sys
from pathlib import Path

import pytest

from minigrad import checkpoint
from minigrad.cli import main
from minigrad.train import TensorBoard
from minigrad.train.history import History
from tests.cli.cli_runs import QUICK, RESUME, elsewhere, environment, finished, weights_of  # noqa: F401

pytestmark = pytest.mark.deep

MINIGRAD = [sys.executable, "-W", "error", "-m", "minigrad"]
TRAIN = ["train", *QUICK, "--out", "run"]


def full(*parts):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_room(monkeypatch, name, calls):
    """Let os.NAME fail at these calls, counted from 0, that come from writes of whole files; gives the count so far."""
    true, count = getattr(os, name), [0]

    def tried(*arguments, **options):
        number, count[0] = count[0], count[0] + 1
        return full() if number in calls else true(*arguments, **options)

    monkeypatch.setattr(f"minigrad.checkpoint.os.{name}", tried)
    return count


@pytest.mark.parametrize("call", range(4))
def test_a_write_that_fails_ends_the_training_and_it_goes_on_from_there(finished, monkeypatch, capsys, call):
    """Any of the first epoch: the history, the best checkpoint, the last; what was there before is whole."""
    begun = 2  # config.json, and a checkpoint
    with monkeypatch.context() as patch:
        no_room(patch, "replace", {begun + call})
        assert main(TRAIN) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("minigrad train: error: ") and "No space left on device" in error
    if "checkpoint: " in error:
        assert error.endswith("run/last holds step 0; minigrad train --resume run goes on there")
    assert main([*RESUME, "run"]) == 0
    assert weights_of("run") == weights_of(finished)
    checkpoint.load("run/best")
    assert not list(Path("run").rglob(".partial*"))


def test_a_run_that_cannot_begin_is_one_line(monkeypatch, capsys):
    no_room(monkeypatch, "replace", range(10**6))
    assert main(TRAIN) == 1
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1 and "No space left on device" in printed.err
    assert not (Path("run") / "config.json").exists()


# ---- weights and losses that are not finite --------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_says_what_is_safe(capsys):
    assert main(["train", *QUICK, "--optimizer", "sgd", "--lr", "1e30", "--save-every", "1", "--out", "run"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    pattern = (
        r"minigrad train: error: .* step (\d+).*lower the learning rate.* run/last holds step (\d+); minigrad train"
    )
    failed, safe = map(int, re.search(pattern, error).groups())
    assert safe < failed
    assert main(["evaluate", "run"]) == 0  # its weights are finite


def test_weights_that_are_not_finite_are_not_saved(monkeypatch, capsys):
    """The update before the loss shows it has made them so."""
    from minigrad.train import Callback, Histograms

    def spoil(self, history):
        if history.steps == 30:
            next(iter(self.model.parameters())).array[0, 0] = float("nan")

    monkeypatch.setattr(Histograms, "on_step", spoil, raising=False)
    assert Callback.on_step is not spoil
    options = [option for option in TRAIN if option != "--no-report"]
    assert main([*options, "--save-every", "10"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert "1.weight is not finite after step 30, so that is not saved; run/last holds step 23; " in error
    assert main(["evaluate", "run"]) == 0


# ---- TensorBoard -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that is always full is Linux's")
def test_event_files_without_room_end_no_training(monkeypatch, capsys):
    writer = pytest.importorskip("tensorboardX.record_writer")
    monkeypatch.setattr(writer, "open_file", lambda path: open("/dev/full", "wb"))
    with pytest.warns(UserWarning, match="TensorBoard: run/tensorboard cannot be written: .Errno 28.*goes on without"):
        assert main([*TRAIN, "--tensorboard"]) == 0


def test_an_event_folder_that_is_a_file_is_a_warning(tmp_path):
    pytest.importorskip("tensorboardX")
    (tmp_path / "board").write_text("")
    with TensorBoard(tmp_path / "board") as board:
        with pytest.warns(UserWarning, match="board cannot be written: .*the training goes on without"):
            board.on_start(History())
        history = History([{"loss": 1.0}])
        with contextlib.suppress(ZeroDivisionError):
            board.on_epoch(history)
    assert (tmp_path / "board").read_text() == ""
