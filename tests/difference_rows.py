"""What the tests of the page of differences share: the rows of the page, who shows them, and how."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parents[1] / "examples" / "docs" / "differences.md"
MAIN = PAGE.read_text()


def first_cells(text):
    """The first cells of the tables of a text."""
    return re.findall(r"^\| (?!where \|)(.+?) \|.+\|.+\|$", text, re.MULTILINE)


class Shown(dict):
    """The functions that show the rows of a text, each under the words with which its row begins."""

    def __init__(self, text):
        self.rows = first_cells(text)

    def __call__(self, words):
        """The decorated function asserts the row that begins with these words."""

        def note(function):
            assert words not in self
            self[words] = function
            return function

        return note

    def show(self, row):
        (function,) = (function for words, function in self.items() if row.startswith(words))
        function()

    def check(self):
        """Each row is shown once, and nothing is shown that is no row."""
        assert self.rows
        assert len(set(self.rows)) == len(self.rows) == len(self)
        missing = [words for words in self if not any(row.startswith(words) for row in self.rows)]
        assert not missing, missing


def refuses(error, words, *calls):
    """Each call is refused in these words."""
    for call in calls:
        with pytest.raises(error, match=re.escape(words)):
            call()


def warns(words, call):
    """What a call gives, with a warning in these words."""
    with pytest.warns(UserWarning, match=re.escape(words)):
        return call()


def gives(found, wanted, tolerance=1e-6):
    """A Tensor has these numbers, in nested lists; NaN and infinity are numbers like others."""
    found = found.tolist()
    assert np.shape(found) == np.shape(wanted), (found, wanted)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=0)
