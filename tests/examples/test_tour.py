"""The tour of the engine: it shows the code as it is, its programs run, and the path that it follows is short."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np

import minigrad
from minigrad import Tensor

ROOT = Path(__file__).resolve().parents[2]
LINES, FILES = 500, 12  # of functions on the path of a convolution, and of the files in which they stand


def page():
    spec = importlib.util.spec_from_file_location("tour", ROOT / "examples" / "docs" / "tour.py")
    tour = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tour)
    return tour


def test_it_shows_the_code_as_it_is():
    tour = page()
    for path, marks in zip(tour.PAGES, (10, 5, 5), strict=True):
        text = path.read_text()
        assert len(tour.MARK.findall(text)) > marks
        assert tour.filled(text) == text, "run: python examples/docs/tour.py"


def test_its_programs_run(capsys):
    text, programs = page().PAGE.read_text(), []
    for found in re.finditer(r"(-->\n)?^```python\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL):
        if not found[1]:
            programs.append(found[2])
    exec("\n".join(programs), {})
    assert capsys.readouterr().out.splitlines() == ["[3.0, 4.0]", "mul (2,)", "sum ()"]


def test_the_path_of_a_convolution_is_short():
    """Down to the launchers of the kernels: what those call is another story."""
    x, w = (Tensor(np.ones(shape, np.float32), requires_grad=True) for shape in ((2, 3, 8, 8), (4, 3, 3, 3)))
    run = lambda: minigrad.relu(minigrad.conv2d(x, w)).sum().backward()
    run()  # kernels are compiled
    seen, inside = set(), []

    def note(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call":
            kernels = ROOT / "kernels" in path.parents and "toolchain" not in path.parts
            if not inside and (ROOT / "kernels" in path.parents or ROOT / "minigrad" in path.parents):
                seen.add((path, frame.f_code.co_firstlineno))
            if inside or kernels:
                inside.append(frame)
        elif event == "return" and inside and inside[-1] is frame:
            inside.pop()

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    lines = {path: 0 for path, _ in seen}
    for path in lines:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                decorators = getattr(node, "decorator_list", [])
                if (path, min([node.lineno, *[one.lineno for one in decorators]])) in seen:
                    lines[path] += node.end_lineno - node.lineno + 1 - documented(node)
    table = {str(path.relative_to(ROOT)): count for path, count in sorted(lines.items())}
    assert sum(lines.values()) <= LINES and len(lines) <= FILES, f"{sum(lines.values())} in {len(lines)}: {table}"


def documented(node):
    """The lines of its docstring."""
    text = ast.get_docstring(node, clean=False) if isinstance(node, ast.FunctionDef) else None
    return text.count("\n") + 1 if text else 0
