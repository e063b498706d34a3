"""CPU kernels: compiled and kept on disk, shared by threads, and their small helpers; in processes of their own."""

import io
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numba
import numpy as np
import pytest

import minigrad_kernels
from minigrad_kernels import elementwise
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain import alias, backend, cache, cpu, progress, set_threads, shared
from tests.kernels.kernel_runs import on_threads

PACKAGE = Path(minigrad_kernels.__file__).parent
ROOT = Path(__file__).parents[3]
deep = pytest.mark.deep  # processes that compile, each for some seconds
KERNEL = """
from minigrad_kernels.toolchain import jit, share, shared

@jit
def twice(x):
    return x + x

@shared
def double(team, x, out):
    for k in share(x.size, team):
        out[k] = twice(x[k])
"""
USE = """
import sys
import numpy as np
import kernel
x, out = np.arange(5.0), np.zeros(5)
kernel.double(x, out)
assert (out == 2 * x).all()
"""
TWO = "from minigrad_kernels.toolchain import set_threads; set_threads(2)\n"
COUNT = "\nprint(*(sum(count.values()) for count in kernel.double.entry.stats[1:]))"  # loaded and compiled


def python(code, folder, path=PACKAGE.parent, **environment):
    """What a fresh process prints; warnings are errors in it, and its cache lies in the folder."""
    settings = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{folder}", "MINIGRAD_CACHE": str(folder / "cache")}
    command = [sys.executable, "-W", "error", "-W", "ignore:.*fork:DeprecationWarning", "-c", code]
    done = subprocess.run(command, env=settings | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def kernel(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    return tmp_path


# ---- kept on disk ----------------------------------------------------------------------------------------------------


def test_what_one_process_compiled_the_next_one_loads(kernel):
    """For one thread and for two; not of a damaged file, of another source or of other types."""
    use = USE + "kernel.double(np.arange(5), np.zeros(5))" + COUNT
    assert python(TWO + use, kernel, NUMBA_NUM_THREADS="2") == ["0", "2"]
    assert python(use, kernel, NUMBA_NUM_THREADS="1") == ["2", "0"]
    files = [file for file in (kernel / "cache" / "kernels").rglob("double-*") if file.is_file()]
    for file, damaged in zip(files, (b"nothing that was kept", files[1].read_bytes()[:-100]), strict=True):
        file.write_bytes(damaged)
    assert python(use, kernel) == ["0", "2"]
    (kernel / "kernel.py").write_text(KERNEL.replace("return x + x", "return 3 * x"))
    assert python(use.replace("2 * x", "3 * x"), kernel) == ["0", "2"]


def test_the_folder_follows_the_sources_of_kernels(tmp_path, monkeypatch):
    """Not those that compiled code cannot reach: references and CUDA."""
    monkeypatch.setattr(cache, "PACKAGE", tmp_path)
    (tmp_path / "family").mkdir()
    names = []
    for file in ("reference.py", "cuda_plain.py", "cpu.py"):
        names.append(cache._fingerprint.__wrapped__())
        (tmp_path / "family" / file).write_text("# another source\n")
    assert names[0] == names[1] == names[2] != cache._fingerprint.__wrapped__()


@deep
def test_what_cannot_be_kept_is_no_error(kernel):
    """In a folder that cannot be, and in one that another program took away."""
    (kernel / "file").write_text("")
    where = "\nfrom minigrad_kernels.toolchain.cache import cache_folder; print(cache_folder())"
    assert python(USE + where, kernel, MINIGRAD_CACHE=str(kernel / "file" / "cache")) == ["None"]
    taken = "from minigrad_kernels.toolchain.cache import cache_folder as f; f().rmdir(); f().write_text('taken')\n"
    assert python(taken + USE + COUNT, kernel) == ["0", "1"]


# ---- processes -------------------------------------------------------------------------------------------------------


def test_imports_compile_nothing_and_change_no_settings(tmp_path):
    code = (
        "import sys, os; before = dict(os.environ); from minigrad_kernels import elementwise, norm, optimizer, softmax"
    )
    assert python(code + "; print(dict(os.environ) == before, 'numba' in sys.modules)", tmp_path) == ["True", "False"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_runs_kernels_after_the_parent_used_the_team(kernel):
    code = f"""{TWO}{USE}
import os
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.cpu import _team_lock
_team_lock.acquire()  # a thread that the child does not have may hold it
child = os.fork()
if child == 0:
    import warnings
    out[:] = 0
    with warnings.catch_warnings(record=True, action="always") as caught:
        kernel.double(x, out)
        kernel.double(x, out)
    print(*[one.message for one in caught], flush=True)
    os._exit(0 if (out == 2 * x).all() and threads() == 1 else 1)
_team_lock.release()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), threads())
"""
    *said, status, count = python(code, kernel, NUMBA_NUM_THREADS="2")
    once = "a forked process has no threads: kernels use one; spawn it to have more, or say set_threads(1)"
    assert " ".join(said) == once and (status, count) == ("0", "2")


@pytest.mark.parametrize("layer", ["workqueue", pytest.param("omp", marks=deep), pytest.param("tbb", marks=deep)])
def test_each_pool_of_numba(kernel, layer):
    module = f"numba.np.ufunc.{'workqueue' if layer == 'workqueue' else layer + 'pool'}"
    pytest.importorskip(module, exc_type=ImportError)
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
    assert python(code, kernel, NUMBA_NUM_THREADS="2", NUMBA_THREADING_LAYER=layer) == [layer]


def test_a_numba_whose_internals_nobody_knows_is_refused(monkeypatch):
    wanted = "numba>={}.{},<{}.{}".format(*cpu.NUMBA[0], *cpu.NUMBA[1])
    monkeypatch.setattr(numba, "version_info", numba.version_info._replace(short=(0, 99)))
    with pytest.raises(StateError, match=f"kernels: numba is {numba.__version__}, wants {wanted}"):
        cpu.linker.__wrapped__()
    assert wanted in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


# ---- threads ---------------------------------------------------------------------------------------------------------


@shared
def count_shares(team, seen, shares):
    seen[team[0]] += 1
    shares[team[0]] = team[1]


def test_each_share_runs_once_whatever_the_threads():
    """By the same compiled code, which holds no reference to its arguments; other code of Numba's keeps its threads."""
    before = numba.get_num_threads()
    for n in (1, 2):
        with on_threads(n):
            for shares in (1, 2, 3, 8):
                seen, found = np.zeros(8, np.int64), np.zeros(8, np.int64)
                count_shares.on(shares, seen, found)
                np.testing.assert_array_equal(seen, np.arange(8) < shares)
                np.testing.assert_array_equal(found, shares * seen)
    stats, references = str(count_shares.entry.stats), sys.getrefcount(seen)
    with on_threads(2):
        for size, want in ((cpu.SMALL, 2), (cpu.SMALL - 1, 1)):
            count_shares.over(size, seen, found)
            assert found.tolist() == [want, 2, 8, 8, 8, 8, 8, 8]
        elementwise.relu(np.ones(100_000), np.ones(100_000))
    assert str(count_shares.entry.stats) == stats and sys.getrefcount(seen) == references
    assert numba.get_num_threads() == before
    most = numba.config.NUMBA_NUM_THREADS
    with pytest.raises(ShapeError, match=f"set_threads: n = {most + 1}, but Numba allows 1 to {most}"):
        set_threads(most + 1)
    with pytest.raises(KindError, match="set_threads: n is float, wants an integer"):
        set_threads(1.0)


QUOTAS = [  # files of a control group -> CPUs
    ({}, None), ({"cpu.max": "max 100000"}, None), ({"cpu.max": "150000 100000"}, 2), ({"cpu.max": "nonsense"}, None),
    ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 3),
    ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
]  # fmt: skip


def test_what_a_container_leaves(tmp_path):
    for number, (files, cpus) in enumerate(QUOTAS):
        for name, content in files.items():
            (tmp_path / f"{number}" / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / f"{number}" / name).write_text(content)
        assert cpu.cpu_quota(tmp_path / f"{number}") == cpus


def test_a_terminal_shows_what_is_compiled(monkeypatch):
    """Nothing of what takes no time, and nothing where there is no terminal."""
    for terminal, seconds in ((True, 2.0), (True, 0), (False, 2.0)):
        stream = io.StringIO()
        stream.isatty = lambda: terminal  # noqa: B023
        monkeypatch.setattr(progress, "_seconds", seconds)
        monkeypatch.setattr(progress.sys, "stderr", stream)
        with progress.compiling(count_shares.function):
            pass
        text = stream.getvalue()
        shown = text.startswith("\rcompiling kernels for this machine, once: ") and text.endswith(" \r")
        assert shown == (terminal and seconds > 0)
    assert text == ""


def test_alias_is_the_same_memory_and_backend_knows_arrays():
    x = np.arange(6.0).reshape(2, 3)
    assert alias(x) is x and backend(x) == "cpu"
    x.flags.writeable = False
    same = alias(x)
    assert same.flags.writeable and np.shares_memory(same, x) and numba.typeof(same) != numba.typeof(x)
    del x
    assert same.tolist() == [[0, 1, 2], [3, 4, 5]], "which it keeps alive"
    for other in ([1.0], np.float64(1), np.ma.masked_array([1.0])):
        with pytest.raises(KindError, match="backend: got"):
            backend(other)
