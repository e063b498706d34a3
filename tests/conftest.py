import os
import signal
from pathlib import Path

import pytest

from minigrad_kernels.toolchain.cuda import compiler

# Fast tests that take more than 5 s where kernels are kept: the simulator, which starts a thread of the system for each
# thread of a kernel (kernels/test_simulator.py); a rank that is killed, and starts again (parallel/test_recovery.py);
# PyTorch's own compiler beside ours (one_cycle in oracles/test_programs_torch.py); a training on the stand-in, eager
# and replayed, whose kernels are interpreted (graph/test_graph.py).
REPOSITORY = Path(__file__).resolve().parents[1]
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell: tests send it to programs
    signal.signal(signal.SIGINT, signal.default_int_handler)
reports = []  # lines for the end of the run, from tests that measure


missing = compiler.missing  # a test may replace that of the module


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Where there is no compiler, a test that needs a compiled kernel, itself or in a program it starts, is skipped."""
    report = yield
    said = report.longreprtext + report.capstderr
    if report.failed and missing() and "there is no CUDA compiler" in said:
        reason = f"compiles: {missing()}"
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1], reason)
    return report


@pytest.fixture(scope="session")
def shared_data():
    """A folder beside the repository with real MNIST and CIFAR-10 files, complete or in part."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder ../shared/data with MNIST and CIFAR-10 files beside the repository")
    return folder


@pytest.fixture
def sent(monkeypatch):
    """The arrays that the kernels of optimisers sent to the device, to new places and to old ones."""
    from minigrad_kernels.optimizer import cuda as optimizer

    found, upload, write = [], optimizer.upload, optimizer.write
    monkeypatch.setattr(optimizer, "upload", lambda array, like: found.append(array) or upload(array, like))
    monkeypatch.setattr(optimizer, "write", lambda target, values: found.append(values) or write(target, values))
    return found


def pytest_addoption(parser):
    parser.addoption("--deep", action="store_true", help="also run the tests marked deep, which take long")


def pytest_configure(config):
    config.addinivalue_line("markers", "deep: takes long, runs with --deep alone")


def pytest_collection_modifyitems(config, items):
    """Leave the deep tests to --deep; pytest's last line counts them as deselected."""
    if not config.getoption("--deep"):
        deep = [item for item in items if item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


def pytest_sessionfinish(session, exitstatus):
    """With MINIGRAD_NO_SKIPS set, a skipped test fails the run: nothing was left out unseen."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("MINIGRAD_NO_SKIPS") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    for line in reports:
        terminalreporter.write_line(line)
