"""Worker processes and Python's threads, on every layer of threads that Numba has here: right results, no hang."""

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

CAN_FORK = "fork" in multiprocessing.get_all_start_methods()
LIMIT = 200  # seconds, after which it hangs


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


def said_by(case, layer, **environment):
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "kernels")])
    settings = {"PYTHONPATH": paths, "NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": layer}
    settings["OMP_WAIT_POLICY"] = "PASSIVE"  # many threads on few CPUs
    settings["PYTHONWARNINGS"] = "ignore"  # newer Pythons warn of each fork of a process with threads
    command = [sys.executable, "-m", "tests.core.worker_program", case]
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
@pytest.mark.parametrize("layer", layers())
@pytest.mark.parametrize("case", ["several_threads", *["forked", "forked_from_busy_threads"] * CAN_FORK])
def test_computing_at_once_on_each_layer_of_threads(case, layer):
    assert said_by(case, layer) == layer


@pytest.mark.deep
@pytest.mark.parametrize("case", ["pools", "streams", *["forked_with_an_open_loader"] * CAN_FORK])
def test_worker_processes(case):
    assert said_by(case, "default") in layers()


def test_threads_that_compile_at_once(tmp_path):
    assert said_by("first_calls_of_several_threads", "workqueue", MINIGRAD_CACHE=str(tmp_path)) == "workqueue"
