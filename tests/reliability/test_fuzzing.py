"""Readers of files on damaged and hostile ones: only the documented errors leave, and what is refused changes nothing.

fuzz.py goes on for as long as it is told to; what it finds becomes a row of FOUND here.
"""

import pytest

from tests.reliability.fuzz import TARGETS, damaged

MUTATIONS = 60  # of each target


FOUND = {  # inputs that once brought out another error, made of the first valid one
    "checkpoint-state": [  # an option that stayed when the schedule was refused
        lambda seed: seed.replace(b'"eps"', b'"epoch"', 1).replace(b'"base_lrs"', b'"base_lr"', 1)
    ],
    "config": [lambda seed: seed.replace(b'"data_dir": null', b'"data_dir": ' + b"[" * 20000 + b"]" * 20000)],
}


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_leave(name, tmp_path):
    """Valid files are read; of damaged ones, many are refused, and none fails in another way."""
    target = TARGETS[name]
    seeds, read = target.prepare(tmp_path)
    for seed in seeds:
        read(seed)
    for damage in FOUND.get(name, ()):
        data = damage(seeds[0])
        assert data != seeds[0]
        with pytest.raises(target.errors):
            read(data)
    refused = 0
    for number in range(MUTATIONS):
        try:
            read(damaged(target, seeds, number))
        except target.errors:
            refused += 1
    assert refused > MUTATIONS / 4
