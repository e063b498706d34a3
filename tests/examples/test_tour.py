"""The tour of the engine: it shows the code as it is, its programs run."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
