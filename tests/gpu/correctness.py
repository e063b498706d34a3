"""The tables of kernel tests on the device: the very tests that the interpreter runs elsewhere."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = ["run", "run_tests"]

TESTS = Path(__file__).resolve().parents[1]
FILES = (
    "kernels/test_kernels_cuda.py",
    "kernels/test_matmul_cuda.py",
    "kernels/test_conv2d_cuda.py",
    "kernels/test_residual.py",
    "kernels/test_pool_cuda.py",
    "kernels/test_elementwise_cuda.py",
    "data/test_augment.py",
    "kernels/test_norm_cuda.py",
    "ops/test_norm_running.py",
    "kernels/test_softmax_cuda.py",
    "kernels/test_optimizer.py",
    "kernels/test_optimizer_cuda.py",
    "optim/test_cuda.py",
    "optim/test_clip.py",
    "optim/test_muon.py",
    "optim/test_scaled.py",
    "kernels/test_kernel_training.py",
)
WORKERS = min(8, os.cpu_count() or 1)  # processes, each with a context of its own on the GPU


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

    def pytest_collectreport(self, report):
        if report.failed:
            self.found["failed_tests"].append(report.nodeid)


def run_tests(found, files, *options, device="cuda"):
    """Run files of tests on a device; passed, skipped and the names of the failed ones go to `found`.

    Other plugins than pytest-xdist stay away, and warnings are no errors: the versions there may be others.
    """
    os.environ |= {"MINIGRAD_TEST_DEVICE": device, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    shared = ["-p", "xdist", "-n", str(WORKERS)] if find_spec("xdist") else []
    settings = ["-q", "-p", "no:cacheprovider", "-W", "default", "--tb=short", *shared, *options]
    code = pytest.main([*settings, *(str(TESTS / name) for name in files)], [Tally(found)])
    found["failed"] = code != 0 or not found["passed"]


def run(found):
    run_tests(found, FILES)
