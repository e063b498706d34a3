"""The same bits on 1, 2, 4 and 8 processes, by MPI and in threads; pipelines; synchronised statistics."""

import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.parallel import run_local

from . import hash_program
from .cli_runs import environment

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[1]
MPIEXEC = Path(sys.executable).with_name("mpiexec")


def printed(*command):
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def by_mpi(ranks, what):
    return printed(MPIEXEC, "-n", ranks, sys.executable, "-m", "tests.hash_program", what)


@pytest.fixture(scope="module")
def alone():
    """What a process without others says, in which the hashes do not depend on buckets and division."""
    lines = printed(sys.executable, "-m", "tests.hash_program", "cases")
    hashes = {name: [line.split(": ")[1] for line in lines if line.startswith(name)] for name in ("sgd", "adam")}
    assert [len(found) for found in hashes.values()] == [2, 3]
    assert all(len(set(found)) == 1 for found in hashes.values()) and hashes["sgd"] != hashes["adam"]
    return lines


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_one_hash_by_mpi(ranks, alone):
    assert by_mpi(ranks, "cases") == alone


def test_one_hash_by_the_launcher(tmp_path, alone):
    how = "-m", "minigrad", "launch", "-n", 4, "--logs", tmp_path / "logs", "-m"
    assert printed(sys.executable, *how, "tests.hash_program", "cases") == alone


@pytest.mark.parametrize("ranks", [2, 8])
def test_one_hash_in_threads(ranks, alone):
    assert run_local(hash_program.cases, ranks) == [alone] * ranks


def test_pipelines_by_mpi():
    assert by_mpi(4, "pipeline") == ["gpipe: True 4, True 4, True 4, True 4", "1f1b: True 2, True 1, True 2, True 1"]


def test_synchronised_statistics_by_mpi():
    (line,) = by_mpi(3, "norm")
    assert float(line.split(": ")[1]) < 1e-12
