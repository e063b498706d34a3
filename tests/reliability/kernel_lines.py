"""Which source lines of CUDA kernels the interpreter executed: a pytest plugin that notes them, and what there is.

    KERNEL_LINES=FILE python -m pytest -p tests.reliability.kernel_lines ...

adds nothing to the tests but a file of "path:line" at their end. Lines are those that PTX has instructions for: what
the compiler works out itself, or drops, has none.
"""

import json
import os
import re
from pathlib import Path

import pytest

__all__ = ["executed", "lines_of_kernels"]

FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.M)
PLACE = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
ANY = re.compile(r"(?:@!?%\w+\s+)?[a-z][\w.]*\s.*;|(?:ret|trap);")
seen = set()


def place_of(file, line):
    """A line as "family/file.py:12"; None for one outside the package."""
    parts = str(file).replace("\\", "/").rpartition("minigrad_kernels/")
    return f"{parts[2]}:{line}" if parts[1] and line else None


def lines_of(text):
    """The places that the instructions of some PTX stand for, with those that they were inlined into."""
    names, found, here = {int(number): name for number, name in FILE.findall(text)}, set(), ()
    for line in map(str.strip, text.splitlines()):
        if line.startswith(".loc"):
            file, row, outer, outer_row = (int(number or 0) for number in PLACE.match(line).groups())
            if row:
                here = place_of(names.get(file, ""), row), place_of(names.get(outer, ""), outer_row)
        elif ANY.match(line):
            found.update(here)
    return found - {None}


def lines_of_kernels():
    """All places of the kernels of the package."""
    from minigrad_kernels.toolchain.cuda.kernel import all_kernels

    return set().union(*(lines_of(kernel.ptx()) for kernel in all_kernels()))


def executed(files):
    """The places that test runs have noted in these files."""
    return {place for file in files for place in json.loads(Path(file).read_text())}


# ---- the plugin ------------------------------------------------------------------------------------------------------


def note(counts):
    """Take down the lines of a launch and of the calls that they stand in."""
    for location in counts.lines:
        while location:
            seen.add(place_of(location.file, location.line))
            location = location.inlined_at


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    from minigrad_kernels.interpreter import launch

    count = launch._count

    def counted(code, machine):
        count(code, machine)
        note(machine.counts)

    launch._count = counted


def pytest_sessionfinish():
    Path(os.environ["KERNEL_LINES"]).write_text(json.dumps(sorted(seen - {None})))
