"""Kernels with equal bits are timed once for a call: on a clock that the test sets, what is kept, and by whom."""

import importlib
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.toolchain.cache import load_file
from minigrad_kernels.toolchain.cuda import tuning
from minigrad_kernels.toolchain.modes import capturing
from tests import standin


def _kernel(key):
    return SimpleNamespace(key=key)


class Call:
    """A call with three candidates on a GPU, and how long each takes."""

    def __init__(self, **times):
        self.times, self.started, self.asked = times, [], 0
        self.like = SimpleNamespace(data=SimpleNamespace(device_id=0))

    def candidates(self):
        self.asked += 1
        return {name: _kernel(f"key of {name}") for name in self.times}

    def milliseconds(self, start):
        before = len(self.started)
        start()
        return sum(self.times[name] for name in self.started[before:])

    def chosen(self, shape=(2, 3)):
        return tuning.chosen("conv2d", shape, self.candidates, self.started.append, self.like)


@pytest.fixture
def timed(monkeypatch, tmp_path):
    """Gives a Call from {name: milliseconds}; nothing is known, and the cache is empty."""
    monkeypatch.setattr(tuning, "user_cache", lambda: tmp_path)
    monkeypatch.setattr(tuning, "_known", {})
    monkeypatch.delenv("MINIGRAD_TUNE", raising=False)
    with standin.installed(devices=1):
        launch = importlib.import_module("minigrad_kernels.toolchain.cuda.launch")

        def make(**times):
            call = Call(**times)
            monkeypatch.setattr(launch, "milliseconds", call.milliseconds)
            return call

        yield make


def test_the_fastest_is_taken_and_known_from_then_on(timed):
    call = timed(a=3.0, b=1.0, c=2.0)
    assert call.chosen() == "b"
    assert call.started == [name for name in "abc" for _ in range(1 + tuning.RUNS)]  # the first is not timed
    assert call.chosen() == "b" and call.asked == 1 and len(call.started) == 3 * (1 + tuning.RUNS)
    call.times["c"] = 0.5
    assert call.chosen((4, 3)) == "c" and call.chosen() == "b"  # another shape is another question
    assert timed(a=1.0, b=1.0).chosen((5, 3)) == "a"  # of equals the first


def test_one_slow_run_decides_nothing(timed, monkeypatch):
    call = timed(a=1.0, b=2.0)
    runs, real = iter([99.0, 0.0, 0.0, 99.0, 0.0] + [0.0] * 5), call.milliseconds
    launch = importlib.import_module("minigrad_kernels.toolchain.cuda.launch")
    monkeypatch.setattr(launch, "milliseconds", lambda start: real(start) + next(runs))
    assert call.chosen() == "a"


def test_another_process_reads_the_choice(timed, tmp_path, monkeypatch):
    """Unless the kernels are others by now, or the file is damaged: then it is written anew."""
    timed(a=3.0, b=1.0).chosen()
    (file,) = (tmp_path / "tuned").glob("conv2d-*")
    good = file.read_bytes()
    assert load_file(file) == b"b"
    tuning._known.clear()
    later = timed(a=1.0, b=3.0)
    assert later.chosen() == "b" and not later.started
    for content in (b"", b"\0", b"\xff\xfe\0\0b", b"z"):
        file.write_bytes(content)
        tuning._known.clear()
        assert timed(a=3.0, b=1.0).chosen() == "b" and file.read_bytes() == good
    tuning._known.clear()
    changed = {name: _kernel("another source") for name in "ab"}
    monkeypatch.setattr(later, "candidates", lambda: changed)
    assert timed(a=1.0, b=3.0) and later.chosen() == "a"


def test_a_folder_that_cannot_be_written_to(timed, tmp_path):
    (tmp_path / "tuned").write_text("a file where the folder should be")
    call = timed(a=3.0, b=1.0)
    assert call.chosen() == call.chosen() == "b" and call.asked == 1


def test_what_decides_where_nothing_may_be_timed(timed, monkeypatch):
    """The table: when it is switched off, while a graph is captured, and for a single candidate."""
    for like in (np.empty(3), interpreter.empty(3)):  # arrays of the host and of the interpreter
        assert tuning.chosen("conv2d", (), lambda: pytest.fail("asked"), None, like) is None
    call = timed(a=3.0, b=1.0)
    with monkeypatch.context() as patch:
        patch.setenv("MINIGRAD_TUNE", "0")
        assert call.chosen() is None
    token = capturing.set(SimpleNamespace())
    try:
        assert call.chosen() is None and not call.started
        capturing.set(None)
        assert call.chosen() == "b"
        capturing.set(SimpleNamespace())
        assert call.chosen() == "b"  # what is known is taken
    finally:
        capturing.reset(token)
    alone = timed(a=3.0)
    assert alone.chosen((5,)) is None and not alone.started


def test_two_processes_keep_one_file(tmp_path):
    """Both write at once: the file is whole whenever it is read."""
    program = """if True:
        import sys
        from pathlib import Path
        from minigrad_kernels.toolchain.cache import load_file, save_file
        file = Path(sys.argv[1]) / "tuned" / "conv2d-x"
        for number in range(200):
            save_file(file, sys.argv[2].encode())
            assert load_file(file) in (b"one", b"two")
    """
    runs = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name]) for name in ("one", "two")]
    assert [run.wait() for run in runs] == [0, 0]
    assert [file.name for file in (tmp_path / "tuned").iterdir()] == ["conv2d-x"]
