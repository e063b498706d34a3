"""A pytest plugin that notes which test runs which line of the library, how long it takes, and what fails.

    COVERING=FOLDER python -m pytest -p tests.reliability.covering ...

Also with -n: each worker leaves the lines that it saw in a file of its own. So does each Python that a test starts,
with the sitecustomize of mutations.py on its path.
"""

import json
import os
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["COVERING"])
SOURCES = ["minigrad", "kernels/minigrad_kernels"]
measured = coverage.Coverage(str(FOLDER / "lines"), data_suffix=True, source=SOURCES, config_file=False)
seconds, failed = {}, set()
measured.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    measured.switch_context(item.nodeid)
    os.environ.update(COVERING_TEST=item.nodeid, COVERING_TREE=os.getcwd())
    try:
        return (yield)
    finally:
        del os.environ["COVERING_TEST"]


def pytest_runtest_logreport(report):
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        failed.add(report.nodeid)


def pytest_sessionfinish(session):
    measured.stop()
    measured.save()
    if not hasattr(session.config, "workerinput"):
        passed = {name: value for name, value in seconds.items() if name not in failed}
        (FOLDER / "tests.json").write_text(json.dumps({"seconds": passed, "failed": sorted(failed)}))


def lines_of(folder):
    """The lines that a measured run left in a folder, as coverage's data."""
    together = coverage.CoverageData(str(folder / "all"))
    for file in folder.glob("lines.*"):
        part = coverage.CoverageData(str(file))
        try:
            part.read()
        except coverage.CoverageException:  # of a process that was killed
            continue
        together.update(part)
    return together
