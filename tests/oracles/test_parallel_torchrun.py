"""Ranks that torchrun starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_runs import environment

pytest.importorskip("torch")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "data_parallel.py"


def last_line(*command):
    done = subprocess.run(
        [*map(str, command)], env=environment() | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_torchrun_gives_the_bits_of_one_process():
    options = "--shards", 4, "--epochs", 1
    torchrun = "-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port", 0, "--standalone"
    alone = last_line(sys.executable, EXAMPLE, *options)
    assert last_line(sys.executable, *torchrun, EXAMPLE, *options) == alone
    assert alone.startswith("weights hash ")
