"""Kernels whose work threads share: the same code on one thread, on many, and without the pool of threads."""

import tomllib
from pathlib import Path

import numba
import numpy as np
import pytest

from minigrad_kernels.toolchain import cpu, jit, set_threads, share, shared, threads
from tests.kernels.toolchain.test_cpu import CATCH, TWO, USE, kernel, python  # noqa: F401

# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

ROOT = Path(__file__).parents[3]
RANGE = "numba>={}.{},<{}.{}".format(*cpu.NUMBA[0], *cpu.NUMBA[1])


@shared
def count_shares(team, seen, shares):
    seen[team[0]] += 1
    shares[team[0]] = team[1]


@shared
def add_one(team, x):
    for k in share(x.size, team):
        x[k] += 1


@jit
def bounds(count, number, shares):
    run = share(count, (number, shares))
    return run.start, run.stop


@pytest.fixture
def two():
    before = threads()
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one thread")
    set_threads(2)
    yield
    set_threads(before)


def test_shares_give_each_index_once_and_in_order():
    for count in (0, 1, 2, 7, 64):
        for shares in (1, 2, 3, 5, 9):
            runs = [bounds(count, number, shares) for number in range(shares)]
            assert runs[0][0] == 0 and runs[-1][1] == count
            assert [stop for _, stop in runs[:-1]] == [start for start, _ in runs[1:]]
            sizes = [stop - start for start, stop in runs]
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shares", [1, 2, 3, 8])
def test_each_share_runs_once_whatever_the_threads(two, shares):
    for n in (1, 2):
        set_threads(n)
        seen, found = np.zeros(8, np.int64), np.zeros(8, np.int64)
        count_shares.on(shares, seen, found)
        np.testing.assert_array_equal(seen, np.arange(8) < shares)
        np.testing.assert_array_equal(found, shares * seen)


def test_a_call_makes_a_share_for_each_thread_and_alone_one(two):
    seen, shares = np.zeros(8, np.int64), np.zeros(8, np.int64)
    count_shares(seen, shares)
    assert shares.tolist() == [2, 2, 0, 0, 0, 0, 0, 0]
    count_shares.alone(seen, shares)
    assert shares.tolist() == [1, 2, 0, 0, 0, 0, 0, 0]


def test_one_compilation_serves_one_thread_and_many(two):
    x = np.zeros(1000, np.float32)
    add_one(x)
    before = str(add_one.entry.stats)
    add_one.alone(x)
    set_threads(1)
    add_one(x)
    assert (x == 3).all() and str(add_one.entry.stats) == before


def test_memory_of_the_arguments_is_released(two):
    import sys

    x = np.zeros(100)
    add_one(x)
    before = sys.getrefcount(x)
    for _ in range(10):
        add_one(x)
        add_one.alone(x)
    assert sys.getrefcount(x) == before


@pytest.mark.parametrize("layer", ["workqueue", "omp", "tbb"])
def test_each_pool_of_numba(kernel, layer):
    try:
        __import__(f"numba.np.ufunc.{'workqueue' if layer == 'workqueue' else layer + 'pool'}")
    except ImportError:
        pytest.skip(f"no {layer} here")
    code = f"""{TWO}{USE}
import threading, numba
outputs = [np.zeros(999) for _ in range(4)]
def work(out):
    for _ in range(100):
        kernel.double(np.arange(999.0), out)
workers = [threading.Thread(target=work, args=(out,)) for out in outputs]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
assert all((out == 2 * np.arange(999.0)).all() for out in outputs)
print(numba.threading_layer())"""
    try:
        found = python(code, kernel, NUMBA_NUM_THREADS="2", NUMBA_THREADING_LAYER=layer)
    except AssertionError as error:
        if layer == "tbb":
            pytest.skip(f"tbb is there and cannot be loaded: {str(error)[-60:]}")
        raise
    assert found == [layer]


def test_a_numba_without_the_door_of_its_pool_runs_shares_in_place(kernel):
    code = f"""{TWO}
import llvmlite.binding
llvmlite.binding.address_of_symbol = lambda name: None
{CATCH}
{USE}
kernel.double(x, out)
print(*caught)"""
    said = "kernels use one thread: this numba has no numba_parallel_for; install another version of numba"
    assert " ".join(python(code, kernel, NUMBA_NUM_THREADS="2")) == said


@pytest.mark.parametrize("n", ["1", "2"])
@pytest.mark.parametrize("version", [(0, 61), (0, 99)])
def test_a_numba_whose_internals_nobody_knows_runs_all_the_same(kernel, n, version):
    code = f"""
import numba
numba.version_info = numba.version_info._replace(short={version})
from minigrad_kernels.toolchain import set_threads; set_threads({n})
{CATCH}
{USE}
assert kernel.twice(4) == 8
print(type(kernel.twice.entry).__module__, *caught)"""
    kind, *said = python(code, kernel, NUMBA_NUM_THREADS="2")
    assert kind == "numba.core.registry"
    assert " ".join(said) == (
        f"kernels use one thread, compile slowly and are not kept on disk: numba is {numba.__version__}, wanted {RANGE}"
    )


def test_the_range_of_numba_is_that_of_the_package():
    assert RANGE in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def test_importing_minigrad_imports_no_numba(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import minigrad; print('numba' in sys.modules)"
    assert python(code, tmp_path) == ["False"]


def test_a_terminal_shows_what_is_compiled(monkeypatch):
    import io

    from minigrad_kernels.toolchain import progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def shown(stream):
        monkeypatch.setattr(progress.sys, "stderr", stream)
        with progress.compiling(bounds.function):
            pass
        return stream.getvalue() if stream else ""

    monkeypatch.setattr(progress, "_seconds", 0.0)
    assert shown(Terminal()) == ""  # nothing worth a word yet
    monkeypatch.setattr(progress, "_seconds", 2.0)
    line, erased = shown(Terminal()).split("\r")[1:3]
    assert line.startswith("compiling kernels for this machine, once: ") and "test_team" in line
    assert erased == " " * len(line)
    assert shown(io.StringIO()) == shown(None) == ""
    heard = []
    with progress.listen(lambda name, seconds: heard.append(name)):
        assert shown(Terminal()) == ""
    assert [name.rpartition(".")[2] for name in heard] == ["bounds"]
