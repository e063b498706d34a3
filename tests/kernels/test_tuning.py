"""Kernels with equal bits are timed once for a call, on a clock that the test sets: what is kept, and candidates."""

import importlib
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.conv2d import cuda as conv2d
from minigrad_kernels.matmul import cuda as matmul
from minigrad_kernels.toolchain.cache import load_file
from minigrad_kernels.toolchain.cuda import tuning
from minigrad_kernels.toolchain.modes import capturing
from tests import standin

from .cases.conv2d import rows
from .cases.matmul import row
from .kernel_runs import make_inputs, run, same_bits
from .rungs import DIRECTIONS


class Call:
    """A call with some candidates on a GPU, and how long each takes."""

    def __init__(self, **times):
        self.times, self.started, self.asked, self.source, self.late = times, [], 0, "source", []
        self.like = SimpleNamespace(data=SimpleNamespace(device_id=0))

    def candidates(self):
        self.asked += 1
        return {name: SimpleNamespace(key=f"{self.source} of {name}") for name in self.times}

    def milliseconds(self, start):
        before = len(self.started)
        start()
        late = self.late.pop(0) if self.late else 0
        return sum(self.times[name] for name in self.started[before:]) + late

    def chosen(self, shape=(2, 3)):
        return tuning.chosen("conv2d", shape, self.candidates, self.started.append, self.like)


@pytest.fixture
def timed(monkeypatch, tmp_path):
    """Gives a Call from {name: milliseconds} in a process that knows nothing; the cache is empty at first."""
    monkeypatch.setattr(tuning, "user_cache", lambda: tmp_path)
    monkeypatch.setattr(tuning, "_known", {})
    monkeypatch.delenv("MINIGRAD_TUNE", raising=False)
    with standin.installed(devices=1):
        launch = importlib.import_module("minigrad_kernels.toolchain.cuda.launch")

        def make(**times):
            tuning._known.clear()
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
    call = timed(a=1.0, b=2.0)
    call.late = [99.0, 0.0, 0.0, 99.0, 0.0]
    assert call.chosen((6, 3)) == "a", "slow runs decide nothing"


def test_another_process_reads_the_choice(timed, tmp_path):
    """Unless the kernels are others by now, or the file is damaged: then it is written anew. A folder that cannot be
    written to is no error."""
    timed(a=3.0, b=1.0).chosen()
    (file,) = (tmp_path / "tuned").glob("conv2d-*")
    good = file.read_bytes()
    assert load_file(file) == b"b"
    later = timed(a=1.0, b=3.0)
    assert later.chosen() == "b" and not later.started
    for content in (b"", b"\0", b"\xff\xfe\0\0b", b"z"):
        file.write_bytes(content)
        assert timed(a=3.0, b=1.0).chosen() == "b" and file.read_bytes() == good
    later = timed(a=1.0, b=3.0)
    later.source = "another source"
    assert later.chosen() == "a"
    (tmp_path / "tuned").rename(tmp_path / "away")
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


# ---- candidates ------------------------------------------------------------------------------------------------------

SETTINGS = (1, 1), (1, 1), (1, 1), 1
ONE_PIXEL = (1, 1), (0, 0), (1, 1), 1


def convolution(direction, x, w):
    """(row, names of kernels of its candidates)"""
    size = x[2:]  # of what is read and of what is made
    kernels = conv2d.equals(direction, x, w, size, SETTINGS, "float32", True)
    return rows(x, w, padding=(1, 1))[DIRECTIONS.index(direction)], kernels


def product(m, k, n):
    return row(m, k, n), matmul.equals(interpreter.empty((m, k)), interpreter.empty((k, n)))


CALLS = {
    "forward": convolution("forward", (1, 16, 3, 4), (24, 16, 3, 3)),
    "forward in slices": convolution("forward", (1, 160, 3, 4), (24, 160, 3, 3)),
    "input_grad": convolution("input_grad", (1, 16, 3, 4), (24, 16, 3, 3)),
    "weight_grad": convolution("weight_grad", (2, 24, 8, 8), (40, 24, 3, 3)),
    "weight_grad in slices": convolution("weight_grad", (9, 24, 8, 8), (40, 24, 3, 3)),
    "product": product(20, 40, 24),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", CALLS)
def test_candidates_have_equal_bits_and_the_chosen_one_runs(name, monkeypatch):
    (case, kernels), found = CALLS[name], []
    module, names, inputs = matmul if name == "product" else conv2d, list(kernels), make_inputs(case, np.float32)
    assert len(names) >= 2
    for rung in names:
        function = partial(getattr(module, case.function), rung=rung)
        found.append(run(case, np.float32, inputs, "interpreter", function))
        same_bits(found[0], found[-1])

    def choice(op, asked, candidates, start, like):
        assert list(candidates()) == names
        start(names[1])  # as when it is timed
        return names[0]

    monkeypatch.setattr(module, "chosen", choice)
    with interpreter.recording() as launches:
        run(case, np.float32, inputs, "interpreter")
    wanted = [kernels[names[1]].name, kernels[names[0]].name]
    assert [name for name, _ in launches if name in wanted] == wanted


def test_what_sums_in_an_order_of_its_own_has_no_candidates():
    assert len(conv2d.equals("forward", (2, 1, 8, 8), (8, 1, 3, 3), (8, 8), SETTINGS, "float32", True)) < 2  # register
    for x, w, settings in (((2, 3, 8, 8), (8, 3, 3, 3), SETTINGS), ((2, 20, 8, 8), (24, 20, 1, 1), ONE_PIXEL)):
        assert not conv2d.equals("weight_grad", x, w, x[2:], settings, "float32", True)
    assert not product(4, 2048, 4)[1]  # cut


def test_filters_of_one_pixel_take_the_candidates_of_products(monkeypatch):
    asked = []
    monkeypatch.setattr(matmul, "chosen", lambda op, *rest: asked.append(op) or "register_64x64")
    for case in rows((2, 20, 4, 5), (24, 20, 1, 1)):
        with interpreter.recording() as launches:
            run(case, np.float32, make_inputs(case, np.float32), "interpreter")
        assert asked.pop() == "matmul" and [name for name, _ in launches] == ["matmul_register_64x64"]
