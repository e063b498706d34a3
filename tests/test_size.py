"""What counts as a code line; that the library is within its limit is a part of .ci/run."""

from tests.size import code_lines, table

SOURCE = '''"""A docstring."""

import os  # 1

# a comment
NAMES = [
    "one",

    "two",
]  # 2 to 5
TEXT = """a string
of two lines"""  # 6 and 7
'''


def test_code_lines():
    assert code_lines(SOURCE) == 7
    assert table([("minigrad/__init__.py", "a = 1\n"), ("minigrad/ops/conv/a.py", "a = 1\nb = 2\n")]) == {
        "minigrad": 1,
        "minigrad/ops": 2,
    }
