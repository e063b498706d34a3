"""Trainings that are killed end with the bits of one that was not: tests/reliability/kills.py, by 8 kills."""

import os
import re

import pytest

from tests.reliability import kills


@pytest.mark.deep
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_kills_cost_no_bit(capsys):
    assert kills.main(["--kills", "8"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    saving = re.match(r"8 times SIGKILL in \d+ trainings by 4 recipes, (\d+) while saving: all end bit for bit", said)
    assert int(saving[1]) >= 1, said
