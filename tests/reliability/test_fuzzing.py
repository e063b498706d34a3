"""Readers of files on damaged and hostile ones: only the documented errors leave, and what is refused changes nothing.

fuzz.py goes on for as long as it is told to; what it finds becomes a row of FOUND here.
"""

import pytest

from tests.reliability.fuzz import TARGETS, damaged

MUTATIONS = 60  # of each target


FOUND = {  # what once brought out another error: bytes of the valid input, and others in their place
    # An option that stayed when the schedule was refused.
    "checkpoint-state": [(b'"eps"', b'"epoch"'), (b'"base_lrs"', b'"base_lr"')],
    "config": [(b'"data_dir": null', b'"data_dir": ' + b"[" * 20000 + b"]" * 20000)],
}


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_leave(name, tmp_path):
    """Valid files are read; of damaged ones, many are refused, and none fails in another way."""
    target = TARGETS[name]
    valid, read = target.prepare(tmp_path)
    read(valid)
    hostile = valid
    for old, new in FOUND.get(name, ()):
        assert old in hostile
        hostile = hostile.replace(old, new, 1)
    if name in FOUND:
        with pytest.raises(target.errors):
            read(hostile)
    refused = 0
    for number in range(MUTATIONS):
        try:
            read(damaged(target, valid, number))
        except target.errors:
            refused += 1
    assert refused > MUTATIONS / 4
