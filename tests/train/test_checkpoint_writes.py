"""What a write that does not come to its end leaves: the checkpoints that were there, or the new one too, all whole."""

import errno
import os
import stat

import pytest

from minigrad import checkpoint
from minigrad.checkpoint import CheckpointError
from tests.train.checkpoint_parts import everything, step, told

# What a save asks of the operating system: the file is on the disk before its name.
CALLS = ["fsync", "replace", "fsync folder", "unlink"]


def watched(patch, fail=None, error=None):
    """The names of CALLS as they come; that of number `fail` fails."""
    made = []

    def around(name, real):
        def call(target, *rest):
            made.append(name + " folder" * (name == "fsync" and stat.S_ISDIR(os.fstat(target).st_mode)))
            if len(made) - 1 == fail:
                raise error
            return real(target, *rest)

        return call

    for name in ("fsync", "replace", "unlink"):
        patch.setattr(os, name, around(name, getattr(os, name)))
    return made


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_failed_call_leaves_whole_checkpoints(tmp_path, monkeypatch, number, error):
    parts = everything()
    for _ in range(2):
        step(parts)
        checkpoint.save(tmp_path, **parts)
    others = {"mine.txt", "checkpoint-1.safetensors.bak", ".partial-checkpoint-9.safetensors"}
    for name in others:
        (tmp_path / name).write_text("another's")
    before = told(parts)
    step(parts)
    with monkeypatch.context() as patch:
        made, interrupted = watched(patch, number, error), isinstance(error, KeyboardInterrupt)
        if CALLS[number] == "unlink" and not interrupted:  # what cannot be removed fails nothing
            checkpoint.save(tmp_path, **parts)
            assert checkpoint.numbers(tmp_path) == [1, 2, 3]
        else:
            with pytest.raises(KeyboardInterrupt if interrupted else CheckpointError, match="No space|^$"):
                checkpoint.save(tmp_path, **parts)
    assert made[: number + 1] == CALLS[: number + 1]
    assert not (tmp_path / ".partial-checkpoint-3.safetensors").exists()
    checkpoint.load(tmp_path, **(loaded := everything(seed=1)))
    assert told(loaded) == (before if number < CALLS.index("fsync folder") else told(parts))
    assert checkpoint.numbers(tmp_path)[:2] == [1, 2]
    checkpoint.save(tmp_path, **parts)
    assert len(checkpoint.numbers(tmp_path)) == 2 and {path.name for path in tmp_path.iterdir()} > others
