"""Every row of tests/refusals: the class of the error, the words of its message, and that nothing was changed."""

import pytest

from tests.refusals import check, families, setting

ROWS = [
    pytest.param(family, row, id=f"{family}-{i}-{row[0]}")
    for family, rows in families().items()
    for i, row in enumerate(rows)
]


@pytest.mark.parametrize("family, row", ROWS)
def test_refused(family, row):
    with setting(family):
        check(row)
