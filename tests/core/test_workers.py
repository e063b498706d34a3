"""Threads and worker processes: the same bits for any number of them, on every layer of threads that Numba has here,
and no hang."""

import contextlib
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
    found = []
    for module in ("workqueue", "omppool", "tbbpool"):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"numba.np.ufunc.{module}")
            found.append(module.removesuffix("pool"))
    return found


def program(case, layer, threads=2):
    """What a case of worker_program.py prints."""
    settings = {"NUMBA_NUM_THREADS": str(threads), "NUMBA_THREADING_LAYER": layer}
    settings["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "kernels")])
    settings["OMP_WAIT_POLICY"] = "PASSIVE"  # many threads on few CPUs
    settings["PYTHONWARNINGS"] = "ignore"  # newer Pythons warn of each fork of a process with threads
    command = [sys.executable, "-m", "tests.core.worker_program", case]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = subprocess.Popen(command, env=os.environ | settings, start_new_session=True, **pipes)
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
def test_computing_at_once(layer):
    assert program("threads_and_forks", layer) == layer


@pytest.mark.deep
def test_any_number_of_threads_has_the_same_bits():
    assert program("numbers_of_threads", "default", 4) in layers()
