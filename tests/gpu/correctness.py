"""Tests of kernels and ops on the device: the very tests that the interpreter and the CPU run elsewhere."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
ASKS = re.compile(r"kernel_runs import [^#]*\bDEVICE\b")  # of a test: on which device it is to run
OPS = TESTS / "ops/test_ops.py", TESTS / "device/test_devices.py"  # the part "ops"
WORKERS = min(8, os.cpu_count() or 1)  # processes, each with a context of its own on the GPU


def files():
    """Every file of tests that asks on which device it is to run, but for those of another part."""
    return [path for path in sorted(TESTS.rglob("test_*.py")) if path not in OPS and ASKS.search(path.read_text())]


class Tally:
    """Counts outcomes, and keeps the names of what failed."""

    def __init__(self, found):
        self.found = found
        found |= {"passed": 0, "skipped": 0, "failed_tests": []}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.found["failed_tests"].append(report.nodeid)
        elif report.skipped:
            self.found["skipped"] += 1
        elif report.when == "call":
            self.found["passed"] += 1

    pytest_collectreport = lambda self, report: self.pytest_runtest_logreport(report) if report.failed else None


def run_tests(found, files, *options):
    """Run files of tests on the GPU; passed, skipped and the names of the failed ones go to `found`.

    Other plugins than pytest-xdist stay away, and warnings are no errors: the versions there may be others.
    """
    os.environ |= {"MINIGRAD_TEST_DEVICE": "cuda", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    shared = ["-p", "xdist", "-n", str(WORKERS)] if find_spec("xdist") else []
    settings = ["-q", "-p", "no:cacheprovider", "-W", "default", "--tb=short", *shared, *options]
    code = pytest.main([*settings, *map(str, files)], [Tally(found)])
    found["failed"] = code != 0 or not found["passed"]


def correctness(found):
    run_tests(found, files())


def ops(found):
    run_tests(found, OPS, "-k", "cuda")  # of the second file, what is not about the stand-in
