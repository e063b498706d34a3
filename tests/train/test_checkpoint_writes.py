"""What a write that does not come to its end leaves: the checkpoints that were there, or the new one too, all whole."""

import builtins
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from minigrad import checkpoint, nn
from minigrad.checkpoint import CheckpointError
from tests.train.checkpoint_parts import bits, step, trained


@pytest.fixture
def saved(tmp_path):
    """A folder with two checkpoints, the bits of the newest, and what it was made of, one step on."""
    parts = trained()
    for _ in range(2):
        step(*parts)
        checkpoint.save(tmp_path, *parts)
    before = bits(*parts)
    step(*parts)
    return tmp_path, before, parts


class Calls:
    """The calls of the operating system that a save makes, in order, each in words; one of them may fail.

    fail    (its number, the error), in place of the call or, for a write, after half of the bytes
    """

    def __init__(self, patch, fail=(None, None)):
        self.made, self.fail, self.handles = [], fail, {}
        for name in ("fsync", "replace", "unlink", "open", "close"):
            patch.setattr(os, name, self.noted(name, getattr(os, name)))
        patch.setattr(builtins, "open", self.opened(builtins.open))

    def note(self, words):
        self.made.append(words)
        if len(self.made) == self.fail[0]:
            raise self.fail[1]

    def noted(self, name, real):
        def call(first, *rest, **options):
            what = self.handles.get(first, first) if isinstance(first, int) else os.path.basename(first)
            what = what.split("-", 2)[-1] if str(what).startswith(".partial-") else what
            if name in ("fsync", "replace") or name == "unlink":
                self.note(f"{name} {what}")
            made = real(first, *rest, **options)
            if name == "open":
                self.handles[made] = "folder"
            return made

        return call

    def opened(self, real):
        calls = self

        def call(file, mode="r", *rest, **options):
            made = real(file, mode, *rest, **options)
            if mode != "wb":
                return made
            name = os.path.basename(file).split("-", 2)[-1]
            calls.handles[made.fileno()] = name
            calls.note(f"open {name}")
            return Written(made, name, calls)

        return call


class Written:
    """A file that notes what is written."""

    def __init__(self, file, name, calls):
        self.file, self.name, self.calls = file, name, calls

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.calls.note(f"write {self.name}")
        self.file.write(content[len(content) // 2 :])

    def flush(self):
        self.file.flush()

    def fileno(self):
        return self.file.fileno()


FILE = "checkpoint-3.safetensors"
ORDER = [*[f"{call} {FILE}" for call in ("open", "write", "fsync", "replace")], "fsync folder"]


def test_the_file_is_on_the_disk_before_its_name_and_the_oldest_goes_last(saved, monkeypatch):
    folder, _, parts = saved
    with monkeypatch.context() as patch:
        calls = Calls(patch)
        checkpoint.save(folder, *parts)
    assert calls.made == [*ORDER, "unlink checkpoint-1.safetensors"]


ERRORS = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS, ids=["full", "interrupted"])
@pytest.mark.parametrize("number", range(1, len(ORDER) + 1))
def test_a_failed_call_leaves_whole_checkpoints(saved, monkeypatch, number, error):
    folder, before, parts = saved
    with monkeypatch.context() as patch:
        calls = Calls(patch, (number, error))
        interrupted = isinstance(error, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt if interrupted else CheckpointError) as caught:
            checkpoint.save(folder, *parts)
    assert calls.made[:number] == ORDER[:number]
    assert interrupted or f"cannot save {folder}: " in str(caught.value) and error.strerror in str(caught.value)
    assert not list(folder.glob(".partial-*"))
    others = trained(seed=1)
    checkpoint.load(folder, *others)
    assert bits(*others) == (bits(*parts) if number == len(ORDER) else before)
    assert checkpoint.numbers(folder)[:2] == [1, 2]
    checkpoint.save(folder, *parts)
    assert len(list(folder.iterdir())) == 2


def test_what_cannot_be_removed_stays_and_fails_nothing(saved, monkeypatch):
    folder, _, parts = saved
    with monkeypatch.context() as patch:
        Calls(patch, (len(ORDER) + 1, OSError(errno.EACCES, "Permission denied")))
        checkpoint.save(folder, *parts)
    others = trained(seed=1)
    checkpoint.load(folder, *others)
    assert bits(*others) == bits(*parts)
    with contextlib.suppress(CheckpointError):
        checkpoint.load(folder, *others, number=1)
    checkpoint.save(folder, *parts)
    assert len(list(folder.iterdir())) == 2


def test_leftovers_of_writers_that_were_killed_go_and_other_files_stay(saved):
    folder, _, parts = saved
    (folder / ".partial-123-x").write_bytes(b"torn")
    others = {"mine.txt", "weights-x.safetensors", "checkpoint-1.safetensors.bak", "partial-1"}
    for name in others:
        (folder / name).write_text("kept")
    checkpoint.save(folder, *parts, keep=1)
    assert {path.name for path in folder.iterdir()} == {FILE, *others}
    checkpoint.load(folder, *trained(seed=1))


def test_new_folders_are_made_to_last(tmp_path, monkeypatch):
    """The entry of each folder that is made is flushed in the one above it."""
    opened, flushed, real = {}, [], (os.open, os.fsync)

    def noting(path, *rest, **options):
        handle = real[0](path, *rest, **options)
        opened[handle] = str(path)
        return handle

    monkeypatch.setattr(os, "open", noting)
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(opened.get(handle)) or real[1](handle))
    checkpoint.save(tmp_path / "a/b", nn.Linear(1, 1))
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a/b")} <= set(flushed)


def test_without_permission(saved, monkeypatch):
    folder, before, parts = saved
    denied = PermissionError(errno.EACCES, "Permission denied")

    def refused(*arguments, **options):
        raise denied

    for owner, name in ((os, "listdir"), (type(folder), "read_bytes"), (builtins, "open")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, refused)
            with pytest.raises(CheckpointError, match=f"{folder}.*Permission denied"):
                checkpoint.save(folder, *parts) if name == "open" else checkpoint.load(folder, *parts)
    others = trained(seed=1)
    checkpoint.load(folder, *others)
    assert bits(*others) == before


SAVER = """
import sys
import numpy as np
from minigrad import checkpoint, nn
from minigrad.core.tape import write
model = nn.Linear(300, 300)
number = 0
while True:
    number += 1
    for parameter in model.parameters():
        write(parameter).fill(number)
    checkpoint.save(sys.argv[1], model, extra=number)
    print(number, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_a_killed_writer_leaves_a_whole_checkpoint(tmp_path):
    model = nn.Linear(300, 300)
    for delay in (0.0, 0.011, 0.023):
        with subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            for _ in range(3):
                last = int(writer.stdout.readline())
            time.sleep(delay)
            writer.send_signal(signal.SIGKILL)
        number = checkpoint.load(tmp_path, model)
        assert number >= last
        assert all((parameter.detach().numpy() == number).all() for parameter in model.parameters())


def test_write_atomic_follows_the_umask(tmp_path):
    checkpoint.write_atomic(tmp_path / "a", b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode
