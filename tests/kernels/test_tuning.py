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


def file_of(folder):
    (file,) = (folder / "tuned").glob("conv2d-*")
    return file


def test_the_fastest_is_taken_and_known_from_then_on(timed):
    call = timed(a=3.0, b=1.0, c=2.0)
    assert call.chosen() == "b"
    assert call.started == [name for name in "abc" for _ in range(1 + tuning.RUNS)]  # the first is not timed
    assert call.chosen() == "b" and call.asked == 1 and len(call.started) == 3 * (1 + tuning.RUNS)
    call.times["c"] = 0.5
    assert call.chosen((4, 3)) == "c" and call.chosen() == "b"  # another shape is another question


def test_of_equals_the_first_one_is_taken(timed):
    assert timed(a=1.0, b=1.0).chosen() == "a"


def test_one_slow_run_decides_nothing(timed, monkeypatch):
    call = timed(a=1.0, b=2.0)
    runs, real = iter([99.0, 0.0, 0.0, 99.0, 0.0] + [0.0] * 5), call.milliseconds
    launch = importlib.import_module("minigrad_kernels.toolchain.cuda.launch")
    monkeypatch.setattr(launch, "milliseconds", lambda start: real(start) + next(runs))
    assert call.chosen() == "a"


def test_another_process_reads_the_choice(timed, tmp_path):
    timed(a=3.0, b=1.0).chosen()
    assert load_file(file_of(tmp_path)) == b"b"
    tuning._known.clear()
    later = timed(a=1.0, b=3.0)
    assert later.chosen() == "b" and not later.started


def test_other_kernels_are_timed_anew(timed, monkeypatch):
    timed(a=3.0, b=1.0).chosen()
    tuning._known.clear()
    later = timed(a=1.0, b=3.0)
    changed = {name: _kernel("another source") for name in "ab"}
    monkeypatch.setattr(later, "candidates", lambda: changed)
    assert later.chosen() == "a"


@pytest.mark.parametrize("content", [b"", b"\0", b"\xff\xfe\0\0b", b"z"])
def test_a_damaged_file_is_written_anew(timed, tmp_path, content):
    call = timed(a=3.0, b=1.0)
    call.chosen()
    good = file_of(tmp_path).read_bytes()
    file_of(tmp_path).write_bytes(content)
    tuning._known.clear()
    assert call.chosen() == "b" and file_of(tmp_path).read_bytes() == good


def test_a_folder_that_cannot_be_written_to(timed, tmp_path, monkeypatch):
    (tmp_path / "tuned").write_text("a file where the folder should be")
    call = timed(a=3.0, b=1.0)
    assert call.chosen() == call.chosen() == "b" and call.asked == 1

    def homeless():
        raise RuntimeError("no home folder")

    monkeypatch.setattr(tuning, "user_cache", homeless)
    assert call.chosen((9,)) == "b"


def test_what_decides_where_nothing_may_be_timed(timed, monkeypatch):
    """The table: when it is switched off, while a graph is captured, and for a single candidate."""
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


def test_arrays_of_the_host_and_of_the_interpreter_are_not_timed():
    for like in (np.empty(3), interpreter.empty(3)):
        assert tuning.chosen("conv2d", (), lambda: pytest.fail("asked"), None, like) is None


def test_events_measure_on_the_current_stream():
    with standin.installed(devices=1):
        launch = importlib.import_module("minigrad_kernels.toolchain.cuda.launch")
        started = []
        assert launch.milliseconds(lambda: started.append(1)) >= 0 and started == [1]
        assert launch.device_name(0)


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
    assert load_file(file_of(tmp_path)) in (b"one", b"two")
    assert [file.name for file in (tmp_path / "tuned").iterdir()] == ["conv2d-x"]


def test_kernels_of_the_library_name_a_choice(timed, monkeypatch):
    from minigrad_kernels.elementwise.cuda import rectify

    call = timed(fast=1.0, slow=2.0)
    monkeypatch.setattr(call, "candidates", lambda: dict(zip(("fast", "slow"), rectify.values(), strict=True)))
    assert call.chosen() == "fast"
