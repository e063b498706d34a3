"""Tests of kernels and ops on the device: the very tests that the interpreter and the CPU run elsewhere."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ASKS = re.compile(r"kernel_runs import [^#]*\bDEVICE\b")  # of a test: on which device it is to run
OPS = TESTS / "ops/test_ops.py", TESTS / "device/test_devices.py"  # the part "ops"
WORKERS = min(8, os.cpu_count() or 1)  # processes, each with a context of its own on the GPU


def files():
    """Every file of tests that asks on which device it is to run, but for those of another part."""
    return [path for path in sorted(TESTS.rglob("test_*.py")) if path not in OPS and ASKS.search(path.read_text())]


def run_tests(found, files, *options, device="cuda"):
    """Run files of tests on a device; passed, skipped and the names of the failed ones go to `found`.

    Other plugins than pytest-xdist stay away, and warnings are no errors: the versions there may be others.
    """
    shared = ["-p", "xdist", "-n", str(WORKERS)] if find_spec("xdist") else []
    settings = ["-q", "-rfE", "-p", "no:cacheprovider", "-W", "default", "--tb=short", *shared, *options]
    environment = os.environ | {"MINIGRAD_TEST_DEVICE": device, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *settings, *map(str, files)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    found["failed_tests"] = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    counts = {word: int(number) for number, word in re.findall(r"\b(\d+) (passed|skipped)\b", done.stdout)}
    found |= {"passed": 0, "skipped": 0} | counts
    found["failed"] = done.returncode != 0 or not found["passed"]


def correctness(found):
    run_tests(found, files())


def ops(found):
    run_tests(found, OPS, "-k", "cuda")  # of the second file, what is not about the stand-in
