"""Trainings whose files cannot be written: they go on or stop, say so in one line, and what was written stays whole."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import contextlib
import errno
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from minigrad import checkpoint
from minigrad.cli import main
from minigrad.train import TensorBoard
from minigrad.train.history import History
from tests.cli_runs import QUICK, RESUME, elsewhere, environment, finished, weights_of  # noqa: F401

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

    monkeypatch.setattr(f"minigrad.checkpoint.files.os.{name}", tried)
    return count


@pytest.fixture(scope="module")
def replacements(tmp_path_factory):
    """How many files a run puts in place as it begins, and a training of two epochs in all."""
    from minigrad.cli.run import Run

    folder, begin, begun = tmp_path_factory.mktemp("counted"), Run.begin, []

    def counted(self, *arguments):
        begin(self, *arguments)
        begun.append(count[0])

    with pytest.MonkeyPatch.context() as monkeypatch:
        count = no_room(monkeypatch, "replace", ())
        monkeypatch.setattr(Run, "begin", counted)
        assert main(["train", *QUICK, "--out", str(folder / "run")]) == 0
    return begun[0], count[0]


@pytest.mark.deep
def test_any_write_may_fail_and_the_next_makes_up_for_it(tmp_path, finished, replacements, monkeypatch, capsys):
    """From the first one after the run began; the last ones, which nothing follows, leave the checkpoint whole."""
    begun, count = replacements
    assert count > 3 * begun >= 9
    for call in range(begun, count):
        with monkeypatch.context() as patch:
            no_room(patch, "replace", {call})
            assert main([*TRAIN[:-1], str(tmp_path / str(call))]) == 0
        errors = capsys.readouterr().err.splitlines()
        assert len(errors) == 1 and "No space left on device" in errors[0], errors
        wanted = (
            r"step \d+ is not saved: checkpoint: .*; .*last holds step \d+; the training goes on|.* could not be writ"
        )
        assert re.match(f"minigrad train: ({wanted})", errors[0])
        assert weights_of(tmp_path / str(call)) == weights_of(finished)
        assert checkpoint.load(tmp_path / str(call) / "best") is not None
        assert not list((tmp_path / str(call)).rglob(".partial*"))


def test_a_disk_that_stays_full_ends_with_what_is_safe_and_how_to_go_on(finished, replacements, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        no_room(patch, "replace", range(replacements[0], 10**6))
        assert main(TRAIN) == 1
    printed = capsys.readouterr()
    last = printed.err.splitlines()[-1]
    assert last.startswith("minigrad train: error: step 46 is not saved: checkpoint: cannot save run/last: ")
    assert last.endswith("run/last holds step 0; make room, then go on from there with: minigrad train --resume run")
    assert "Traceback" not in printed.err and "epoch 2/2" in printed.out
    assert main([*RESUME, "run"]) == 0
    assert weights_of("run") == weights_of(finished)


def test_a_run_that_cannot_begin_is_one_line(monkeypatch, capsys):
    no_room(monkeypatch, "replace", range(10**6))
    assert main(TRAIN) == 1
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1 and "No space left on device" in printed.err
    assert not (Path("run") / "config.json").exists()


@pytest.mark.skipif(os.name != "posix", reason="limits on the size of files are POSIX")
def test_files_that_may_not_grow(finished, monkeypatch, capsys):
    """The system itself refuses, in the middle of a write."""
    import resource

    from minigrad.cli.run import Run

    before, write_history = resource.getrlimit(resource.RLIMIT_FSIZE), Run.write_history

    def limited(self, history):
        write_history(self, history)
        size = 4096 if len(history) == 1 else before[0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    monkeypatch.setattr(Run, "write_history", limited)
    try:
        assert main(TRAIN) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    errors = capsys.readouterr().err.splitlines()
    assert errors and all("is not saved" in line and "File too large" in line for line in errors)
    assert weights_of("run") == weights_of(finished)


def test_a_folder_that_disappears(finished, monkeypatch, capsys):
    """It is made anew by the next checkpoint."""
    from minigrad.cli.run import Run

    write_history = Run.write_history

    def gone(self, history):
        if len(history) == 1:
            shutil.rmtree("run")
        write_history(self, history)

    monkeypatch.setattr(Run, "write_history", gone)
    assert main(TRAIN) == 0
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("minigrad train: the history could not be written: ")
    assert weights_of("run") == weights_of(finished)


# ---- weights and losses that are not finite --------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_says_what_is_safe(capsys):
    assert main(["train", *QUICK, "--optimizer", "sgd", "--lr", "1e30", "--save-every", "1", "--out", "run"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    pattern = (
        r"minigrad train: error: .* step (\d+).* run/last holds step (\d+), which minigrad evaluate, predict and "
        r"report take; begin anew with a lower --lr \(it was 1e\+30\) or with --clip 1 and another --out"
    )
    failed, safe = map(int, re.search(pattern, error).groups())
    assert safe < failed
    assert main(["evaluate", "run"]) == 0  # its weights are finite


def test_weights_that_are_not_finite_are_not_saved(monkeypatch, capsys):
    """The update before the loss shows it has made them so."""
    from minigrad.train import Callback
    from minigrad.train.histograms import Histograms

    def spoil(self, history):
        if history.steps == 30:
            next(iter(self.model.parameters())).array[0, 0] = float("nan")

    monkeypatch.setattr(Histograms, "on_step", spoil, raising=False)
    assert Callback.on_step is not spoil
    options = [option for option in TRAIN if option != "--no-report"]
    assert main([*options, "--save-every", "10"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert "1.weight is not finite after step 30, so that is not saved; run/last holds step 23, which" in error
    assert main(["evaluate", "run"]) == 0


# ---- TensorBoard -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that is always full is Linux's")
def test_event_files_without_room_end_no_training(monkeypatch, capsys):
    writer = pytest.importorskip("tensorboardX.record_writer")
    monkeypatch.setattr(writer, "open_file", lambda path: open("/dev/full", "wb"))
    assert main([*TRAIN, "--tensorboard"]) == 0
    (error,) = capsys.readouterr().err.splitlines()
    assert "TensorBoard: run/tensorboard cannot be written: [Errno 28]" in error and "goes on without" in error


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
