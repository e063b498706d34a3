"""What a write that does not come to its end leaves: the checkpoints that were there, or the new one too, all whole."""

import builtins
import errno
import os
import stat

import pytest

from minigrad import checkpoint
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


FILE = "checkpoint-3.safetensors"
CALLS = [f"write {FILE}", f"fsync {FILE}", f"replace {FILE}", "fsync folder", "unlink checkpoint-1.safetensors"]


def watched(patch, fail=None, error=None):
    """The calls of the operating system that a save makes, in words, as they come; that of number `fail` fails."""
    made, real = [], {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}

    def note(words):
        made.append(words)
        if len(made) - 1 == fail:
            raise error

    def opened(file, mode="r", *rest, true=builtins.open, **options):
        handle = true(file, mode, *rest, **options)
        if mode == "wb":
            handle.write(b"half")  # which a write that fails leaves
            note(f"write {os.path.basename(file).removeprefix('.partial-')}")
            handle.seek(0)
        return handle

    def flushed(handle):
        note("fsync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"fsync {FILE}")
        real["fsync"](handle)

    patch.setattr(builtins, "open", opened)
    patch.setattr(os, "fsync", flushed)
    patch.setattr(os, "replace", lambda old, new: note(f"replace {os.path.basename(new)}") or real["replace"](old, new))
    patch.setattr(os, "unlink", lambda path: note(f"unlink {os.path.basename(path)}") or real["unlink"](path))
    return made


ERRORS = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS, ids=["full", "interrupted"])
@pytest.mark.parametrize("number", range(len(CALLS) - 1))
def test_a_failed_call_leaves_whole_checkpoints(saved, monkeypatch, number, error):
    folder, before, parts = saved
    with monkeypatch.context() as patch:
        made, interrupted = watched(patch, number, error), isinstance(error, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt if interrupted else CheckpointError) as caught:
            checkpoint.save(folder, *parts)
    assert made[: number + 1] == CALLS[: number + 1]
    assert interrupted or f"cannot save {folder}: " in str(caught.value) and error.strerror in str(caught.value)
    assert not list(folder.glob(".partial-*"))
    others = trained(seed=1)
    checkpoint.load(folder, *others)
    assert bits(*others) == (bits(*parts) if number == len(CALLS) - 2 else before)
    assert checkpoint.numbers(folder)[:2] == [1, 2]
    checkpoint.save(folder, *parts)
    assert len(list(folder.iterdir())) == 2


def test_the_file_is_on_the_disk_before_its_name_and_what_cannot_be_removed_fails_nothing(saved, monkeypatch):
    folder, _, parts = saved
    (folder / f".partial-{FILE}").write_bytes(b"torn")  # by a writer that was killed
    others = {"mine.txt", "weights-x.safetensors", "checkpoint-1.safetensors.bak", "partial-1"}
    for name in others:
        (folder / name).write_text("kept")
    with monkeypatch.context() as patch:
        made = watched(patch, len(CALLS) - 1, OSError(errno.EACCES, "Permission denied"))
        checkpoint.save(folder, *parts)
    assert made == CALLS and checkpoint.numbers(folder) == [1, 2, 3]
    checkpoint.save(folder, *parts, keep=1)
    assert {path.name for path in folder.iterdir()} == {"checkpoint-4.safetensors", *others}
