"""What a write that does not come to its end leaves: the old checkpoint or the new one, whole."""

import os
import signal
import subprocess
import sys
import time

import pytest

from minigrad import checkpoint, nn
from minigrad.checkpoint import CheckpointError
from tests.checkpoint_parts import bits, step, trained


@pytest.fixture
def saved(tmp_path):
    """A folder with a checkpoint, and what it was made of."""
    parts = trained()
    checkpoint.save(tmp_path, *parts, extra={"note": [1, 2.5, None]})
    return tmp_path, parts


@pytest.mark.parametrize("call", range(4))
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_checkpoint(saved, monkeypatch, function, call):
    """Each of the calls that make a write durable fails once, as on a full disk."""
    folder, parts = saved
    before = bits(*parts)
    step(*parts)
    after, real, calls = bits(*parts), getattr(os, function), []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == call + 1:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(os, function, failing)
    if call >= (2 if function == "replace" else 4):
        checkpoint.save(folder, *parts)
    else:
        with pytest.raises(CheckpointError, match="No space left"):
            checkpoint.save(folder, *parts)
    monkeypatch.undo()
    others = trained(seed=1)
    checkpoint.load(folder, *others)
    assert bits(*others) in (before, after)
    checkpoint.save(folder, *parts)
    assert len(list(folder.iterdir())) == 2


SAVER = """
import sys
import numpy as np
from minigrad import checkpoint, nn
from minigrad.engine import write
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
