"""Compilation, cache and threads of the CPU kernels, most of it in processes of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import minigrad_kernels
from minigrad_kernels import elementwise
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain import (
    alias,
    array_at,
    backend,
    clear,
    copy,
    jit,
    set_threads,
    stack_array,
    threads,
)

PACKAGE = Path(minigrad_kernels.__file__).parent

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


# What is warned of from there on, in a list; one line, so that it can stand in a block.
CATCH = (
    "import warnings; caught = []; warnings.simplefilter('always'); "
    "warnings.showwarning = lambda message, *rest: caught.append(message)"
)
TWO = "from minigrad_kernels.toolchain import set_threads; set_threads(2)\n"


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


COUNT = "print(*(sum(count.values()) for count in kernel.double.entry.stats[1:]))"  # loaded and compiled


def test_a_second_process_loads_what_the_first_compiled(kernel):
    assert python(f"{TWO}{USE}\n{COUNT}", kernel, NUMBA_NUM_THREADS="2") == ["0", "1"]
    assert python(f"{TWO}{USE}\n{COUNT}", kernel, NUMBA_NUM_THREADS="2") == ["1", "0"]
    assert python(f"{USE}\n{COUNT}", kernel, NUMBA_NUM_THREADS="1") == ["1", "0"]


def test_functions_of_numba_call_parts(kernel):
    code = """
import numba, kernel
from minigrad_kernels.toolchain import jit

@jit
def four_times(x):
    return kernel.twice(kernel.twice(x))

print(numba.njit(lambda x: four_times(x) + 1)(2.0))
"""
    assert python(code, kernel) == ["9.0"]


def test_an_edit_of_a_kernel_source_changes_the_folder(tmp_path):
    copy = tmp_path / "copy" / "minigrad_kernels"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    code = "from minigrad_kernels.toolchain.cache import cache_folder; print(cache_folder().name)"

    def name():
        return python(code, tmp_path, copy.parent)

    first = name()
    assert name() == first
    with (copy / "elementwise" / "reference.py").open("a") as file:
        file.write("# no kernel\n")
    assert name() == first
    with (copy / "elementwise" / "cpu.py").open("a") as file:
        file.write("# another source\n")
    assert name() != first


def test_works_without_a_cache_where_nothing_can_be_written(kernel):
    (kernel / "file").write_text("")
    code = f"{USE}\nfrom minigrad_kernels.toolchain.cache import cache_folder; print(cache_folder())"
    assert python(code, kernel, MINIGRAD_CACHE=str(kernel / "file" / "cache")) == ["None"]
    assert sorted(path.name for path in kernel.iterdir() if path.name != "__pycache__") == ["file", "kernel.py"]


def test_works_without_a_source_file(tmp_path):
    code = "from minigrad_kernels.toolchain import jit\nf = jit(lambda x: x + 1)\nprint(f(1))"
    assert python(code, tmp_path) == ["2"]


def test_import_leaves_the_process_as_it_was(tmp_path):
    code = """
import os, threading
import numba, numpy
def state():
    tasks = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else threading.active_count()
    return dict(os.environ), numba.config.CACHE_DIR, tasks
before = state()
from minigrad_kernels import elementwise, norm, optimizer, pool2d, softmax
print(state() == before)
"""
    assert python(code, tmp_path) == ["True"]


def test_the_package_alone_does_not_import_numba(tmp_path):
    assert python("import sys, minigrad_kernels; print('numba' in sys.modules)", tmp_path) == ["False"]


def test_a_forked_child_runs_kernels_after_the_parent_used_the_team(kernel):
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    code = f"""{TWO}{USE}
import os
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.cpu import _team_lock
_team_lock.acquire()  # a thread that the child does not have may hold it
child = os.fork()
if child == 0:
    out[:] = 0
    {CATCH}
    kernel.double(x, out)
    kernel.double(x, out)
    print(*caught, flush=True)
    os._exit(0 if (out == 2 * x).all() and threads() == 1 else 1)
_team_lock.release()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), threads())
"""
    *said, status, count = python(code, kernel, NUMBA_NUM_THREADS="2")
    once = "a forked process has no threads: kernels use one; spawn it to have more, or say set_threads(1)"
    assert " ".join(said) == once and (status, count) == ("0", "2")


def test_threads_of_other_numba_code_stay_as_they_are():
    before, ours = numba.get_num_threads(), threads()
    x = np.ones(100_000)
    try:
        for count in range(1, numba.config.NUMBA_NUM_THREADS + 1):
            set_threads(count)
            assert threads() == count
            elementwise.relu(x, x)
            assert numba.get_num_threads() == before
    finally:
        set_threads(ours)


def test_set_threads_refuses_what_numba_cannot_do():
    most = numba.config.NUMBA_NUM_THREADS
    for n in (0, -1, most + 1):
        with pytest.raises(ShapeError, match=f"set_threads: n = {n}, but Numba allows 1 to {most}"):
            set_threads(n)
    for n in (1.0, True, "2"):
        with pytest.raises(KindError, match="set_threads: n is"):
            set_threads(n)


def test_array_at_views_memory_by_its_address():
    @jit
    def add(addresses, sizes, like):
        for k in range(sizes.size):
            array = array_at(addresses[k], sizes[k], like)
            for i in range(array.size):
                array[i] += 1

    for dtype in (np.float32, np.float64):
        arrays = [np.zeros(5, dtype), np.zeros(3, dtype)]
        add(np.array([a.ctypes.data for a in arrays]), np.array([4, 3]), np.empty(0, dtype))
        np.testing.assert_array_equal(arrays[0], [1, 1, 1, 1, 0])
        np.testing.assert_array_equal(arrays[1], [1, 1, 1])


def test_clear_and_copy_write_what_they_should_and_no_more():
    @jit
    def both(source, target):
        clear(target[1:3])
        copy(source, target[4:])

    target = np.full(8, 7.0, np.float32)
    both(np.array([1.0, 2.0]), target)
    np.testing.assert_array_equal(target, [7, 0, 0, 7, 1, 2, 7, 7])


@pytest.mark.parametrize("used", [0, 3, 8])
def test_stack_array_of_which_a_part_is_used(used):
    @jit
    def sizes(x, used, out):
        stack = stack_array(8, x, used)
        out[0], out[1] = stack.size, stack[2:].size
        for k in range(stack.size):
            stack[-1 - k] = x[k]
        for k in range(stack.size):
            x[k] = stack[k]

    x, out = np.arange(8.0), np.zeros(2)
    sizes(x, used, out)
    assert out.tolist() == [used, max(0, used - 2)]
    assert x.tolist() == [*range(used)][::-1] + [*range(used, 8)]


def test_alias_is_the_same_memory_not_marked_read_only():
    x = np.arange(6.0).reshape(2, 3)
    assert alias(x) is x
    x.flags.writeable = False
    same = alias(x)
    assert same.flags.writeable and np.shares_memory(same, x) and numba.typeof(same) != numba.typeof(x)
    np.testing.assert_array_equal(same, x)
    x_copy, same_alive = x.copy(), same
    del x
    np.testing.assert_array_equal(same_alive, x_copy)


def test_backend_refuses_what_it_does_not_know():
    assert backend(np.empty(0)) == "cpu"
    for other in ([1.0], np.float64(1), np.ma.masked_array([1.0])):
        with pytest.raises(KindError, match="backend: got"):
            backend(other)
