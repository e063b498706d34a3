"""Every row of tests/refusals: the class of the error, the words of its message, and that nothing was changed."""

import contextlib

import pytest

from tests.refusals import check, command, layers, tensors, training

ROWS = [
    pytest.param(family, row, id=f"{family.__name__.rpartition('.')[2]}-{i}-{row[2][:50]}")
    for family in (command, layers, tensors, training)
    for i, row in enumerate(family.REFUSALS)
]


@pytest.mark.parametrize("family, row", ROWS)
def test_refused(family, row):
    with getattr(family, "SETTING", contextlib.nullcontext)():
        check(*row)
