"""Worker processes and Python's threads, on every layer of threads that Numba has here: right results, no hang."""

import importlib
import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

LIMIT = 300  # seconds, after which it hangs


def layers():
    """Numba's layers of threads that can be loaded here."""
    found = ["workqueue"]
    for layer in ("omp", "tbb"):
        try:
            importlib.import_module(f"numba.np.ufunc.{layer}pool")
        except ImportError:
            continue
        found.append(layer)
    return found


def program(name, *arguments, **environment):
    """What a module of this folder prints, run in a process of its own."""
    settings = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "kernels")])}
    settings["OMP_WAIT_POLICY"] = "PASSIVE"  # many threads on few CPUs
    settings["PYTHONWARNINGS"] = "ignore"  # newer Pythons warn of each fork of a process with threads
    command = [sys.executable, "-m", f"tests.core.{name}", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = subprocess.Popen(command, env=os.environ | settings | environment, start_new_session=True, **pipes)
    try:
        out, errors = started.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)  # its children, too
        started.communicate()
        raise
    assert started.returncode == 0, errors
    return out.strip()


@pytest.mark.deep
@pytest.mark.parametrize(
    "case, layer", [*(("threads_and_forks", layer) for layer in layers()), ("worker_processes", "default")]
)
def test_computing_at_once(case, layer):
    found = program("worker_program", case, NUMBA_NUM_THREADS="2", NUMBA_THREADING_LAYER=layer)
    assert found == layer or layer == "default" and found in layers()


@pytest.mark.deep
def test_threads_that_compile_at_once(tmp_path):
    settings = {"NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": "workqueue", "MINIGRAD_CACHE": str(tmp_path)}
    assert program("worker_program", "first_calls_of_several_threads", **settings) == "workqueue"
