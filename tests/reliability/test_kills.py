"""Trainings that are killed end with the bits of one that was not: tests/reliability/kills.py, by 20 kills."""

import os
import random
import re

import pytest

from minigrad import checkpoint, nn
from tests.reliability import kills


@pytest.mark.deep
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_twenty_kills_cost_no_bit(capsys):
    assert kills.main(["--kills", "20"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    saving = re.match(r"20 times SIGKILL in \d+ trainings by 9 recipes, (\d+) while saving: all end bit for bit", said)
    assert int(saving[1]) >= 4, said


def test_a_checkpoint_that_is_torn_is_one_that_find_refuses(tmp_path):
    """For every way to tear one; without one before it nothing is torn."""
    draw = random.Random(1)
    checkpoint.save(tmp_path, nn.Linear(2, 2))
    assert not kills.tear(tmp_path, draw)
    for _ in range(30):
        checkpoint.save(tmp_path, nn.Linear(2, 2))
        newest = checkpoint.numbers(tmp_path)[-1]
        assert checkpoint.find(tmp_path) == (newest, None)
        assert kills.tear(tmp_path, draw) and checkpoint.find(tmp_path)[0] < newest


def test_a_difference_is_seen(tmp_path):
    """What two trainings left is compared in all but times."""
    model = nn.Linear(2, 2)
    for name in ("one", "two", "three"):
        checkpoint.save(tmp_path / name / "last", model, extra={"seconds": len(name), "rows": [{"a": 1}]})
    changed = {"seconds": 3, "rows": [{"a": 2}]}
    checkpoint.save(tmp_path / "three/last", model, extra=changed)
    found = [kills.state(tmp_path / name) for name in ("one", "two", "three")]
    assert found[0] == found[1] != found[2] and len(found[0]) == 3
