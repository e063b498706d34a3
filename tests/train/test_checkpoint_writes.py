"""What a write that does not come to its end leaves: the checkpoints that were there, or the new one too, all whole."""

import errno
import os

import pytest

from minigrad import checkpoint
from minigrad.checkpoint import CheckpointError
from tests.train.checkpoint_parts import everything, step, told

# What a save asks of the operating system: the file is on the disk before its name, and the name before another goes.
CALLS = ["fsync", "replace", "fsync", "unlink"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("fail", range(len(CALLS)))
def test_a_failed_call_leaves_whole_checkpoints(tmp_path, monkeypatch, fail, error):
    parts, made = everything(), []
    for _ in range(2):
        step(parts)
        checkpoint.save(tmp_path, **parts)
    before = told(parts)
    step(parts)

    def around(name, real):
        def call(*arguments):
            made.append(name)
            if len(made) == fail + 1:
                raise error
            return real(*arguments)

        return call

    with monkeypatch.context() as patch:
        for name in set(CALLS):
            patch.setattr(os, name, around(name, getattr(os, name)))
        if CALLS[fail] == "unlink" and isinstance(error, OSError):  # what cannot be removed fails nothing
            checkpoint.save(tmp_path, **parts)
        else:
            kind = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
            with pytest.raises(kind, match="No space|^$"):
                checkpoint.save(tmp_path, **parts)
    assert made[: fail + 1] == CALLS[: fail + 1] and not list(tmp_path.glob(".partial-*"))
    checkpoint.load(tmp_path, **(loaded := everything(seed=1)))
    assert told(loaded) == (before if fail < 2 else told(parts)) and checkpoint.numbers(tmp_path)[:2] == [1, 2]
    (tmp_path / "checkpoint-1.safetensors.bak").write_text("another's")
    checkpoint.save(tmp_path, **parts)
    assert len(checkpoint.numbers(tmp_path)) == 2 and len(list(tmp_path.iterdir())) == 3
