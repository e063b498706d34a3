"""Readers of files on damaged and hostile ones: only the documented errors leave, and what is refused changes nothing.

fuzz.py goes on for as long as it is told to; what it finds becomes a row of FOUND here.
"""

import pytest

from tests.reliability.fuzz import TARGETS, damaged

MUTATIONS = 60  # of each target
FOUND = {  # what once brought out another error: bytes of the valid input, and others in their place
    "checkpoint-state": (b'"eps"', b'"epoch"'),  # an option that stayed when another part was refused
    "config": (b'"data_dir": null', b'"data_dir": ' + b"[" * 20000 + b"]" * 20000),
}


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_leave(name, tmp_path):
    """Valid files are read; of damaged ones, many are refused, and none fails in another way."""
    prepare, mutate, documented = TARGETS[name]
    valid, read = prepare(tmp_path)
    read(valid)
    inputs, refused = [damaged(mutate, valid, number) for number in range(MUTATIONS)], 0
    for content in [*inputs, valid.replace(*FOUND.get(name, (b"", b"")), 1)]:
        try:
            read(content)
        except documented:
            refused += 1
    assert refused > MUTATIONS / 4
