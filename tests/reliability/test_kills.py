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
    saving = re.match(r"20 times SIGKILL in \d+ trainings by 4 recipes, (\d+) while saving: all end bit for bit", said)
    assert int(saving[1]) >= 4, said


def test_a_checkpoint_that_is_torn_is_seen(tmp_path):
    """For every way to tear one, find goes back to the one before; what two trainings left differs, but for times."""
    draw, model = random.Random(1), nn.Linear(2, 2)
    for name, row in (("one", 1), ("three", 1), ("others", 2)):
        checkpoint.save(tmp_path / name / "last", model, extra={"seconds": len(name), "rows": [{"a": row}]})
    one, three, others = (kills.state(tmp_path / name) for name in ("one", "three", "others"))
    assert one == three != others and len(one) == 3
    folder = tmp_path / "one/last"
    assert not kills.tear(folder, draw)
    for _ in range(20):
        checkpoint.save(folder, model)
        newest = checkpoint.numbers(folder)[-1]
        assert checkpoint.find(folder) == (newest, None)
        assert kills.tear(folder, draw) and checkpoint.find(folder)[0] < newest
