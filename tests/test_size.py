"""What counts as a code line, and that the library is within its limit."""

from tests.size import LIMIT, code_lines, main, table

SOURCE = '''"""A docstring

of three lines."""

import os  # 1

# a comment
NAMES = [
    "one",

    # a comment inside
    "two",
]  # 2 to 5


class Empty:  # 6
    """A docstring."""

    text = """a string
    of two lines"""  # 7 and 8

    def name(self):  # 9
        "Also a docstring."
        return os.name  # 10
'''


def test_code_lines():
    assert code_lines(SOURCE) == 10
    assert code_lines("") == code_lines('"""Only words."""\n# and more\n') == 0


def test_a_row_is_a_folder():
    files = [("minigrad/__init__.py", "a = 1\n"), ("minigrad/ops/conv/forms.py", "a = 1\nb = 2\n")]
    assert table(files) == {"minigrad": 1, "minigrad/ops": 2}
    assert table([("kernels/minigrad_kernels/conv2d/cpu.py", "a = 1\n")]) == {"kernels/minigrad_kernels/conv2d": 1}


def test_library_is_within_its_limit(capsys):
    assert main([]) == 0
    assert f"limit {LIMIT:,}" in capsys.readouterr().out
