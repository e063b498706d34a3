"""Where the output of the command goes nowhere, or cannot hold what is written."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import os
import subprocess
import sys

import pytest

from minigrad.cli import main
from tests.cli.cli_runs import QUICK, RESUME, elsewhere, environment, finished, weights_of  # noqa: F401

MINIGRAD = [sys.executable, "-W", "error", "-m", "minigrad"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_ends_the_command_quietly(unbuffered):
    """As in `minigrad info | true`."""
    unread = environment() | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        [*MINIGRAD, "info"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unread
    ) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, "")


def test_a_training_that_nobody_reads_can_be_resumed(finished):
    """As in `minigrad train | head -3`."""
    with subprocess.Popen(
        [*MINIGRAD, "train", *QUICK, "--out", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        for _ in range(3):
            process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, "")
    assert main([*RESUME, "run"]) == 0
    assert weights_of("run") == weights_of(finished)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that is always full is Linux's")
def test_a_full_disk_is_one_line():
    full = environment() | {"PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as file:
        process = subprocess.run([*MINIGRAD, "info"], stdout=file, stderr=subprocess.PIPE, text=True, env=full)
    assert process.returncode == 1
    assert process.stderr.startswith("minigrad info: error: ") and len(process.stderr.splitlines()) == 1
