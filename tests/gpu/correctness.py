"""The tables of kernel tests on the device: the very tests that the interpreter runs elsewhere."""

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILES = ("test_kernels_cuda.py", "test_matmul_cuda.py", "test_optimizer_cuda.py", "test_kernel_training.py")


class Tally:
    """Counts outcomes, and keeps the names of what failed."""

    def __init__(self):
        self.passed, self.skipped, self.failed = 0, 0, []

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call":
            self.passed += report.passed
            self.skipped += report.skipped


def run():
    """passed, skipped, and the names of the failed ones."""
    os.environ["MINIGRAD_TEST_DEVICE"] = "cuda"
    tally = Tally()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *(str(TESTS / name) for name in FILES)], [tally])
    return {
        "passed": tally.passed,
        "skipped": tally.skipped,
        "failed_tests": tally.failed,
        "failed": code != 0 or not tally.passed,
    }
