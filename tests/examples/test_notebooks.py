"""The notebooks run, their exercises can be solved, and what is shown beside them is what they say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"
SCRIPTS = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
LIMIT = 180  # seconds
sys.path.insert(0, str(FOLDER))

import build  # noqa: E402
import checks  # noqa: E402

each = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


def headings(text):
    return re.findall(r"^# (#+ .*)$", text, re.MULTILINE)


def test_the_course_is_whole():
    assert [script.stem for script in build.scripts()] == [script.stem for script in SCRIPTS]
    assert [script.name[:2] for script in SCRIPTS] == [f"{i:02d}" for i in range(1, len(SCRIPTS) + 1)]


def links(text):
    return re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)


@each
def test_runs(script, tmp_path):
    # The working folder is Jupyter's, that of the notebook, so that paths in it are tried as a reader uses them.
    command = [sys.executable, str(ROOT / "tests" / "notebook_run.py"), str(script)]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "kernels"))),
        "MPLCONFIGDIR": str(tmp_path),
    }
    ran = subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert ran.returncode == 0, ran.stderr[-3000:]
    exercises = len([line for line in headings(script.read_text()) if line.startswith("### Exercise")])
    verdicts = re.findall(r"^(\w+): (right|wrong|not yet)\b", ran.stdout, re.MULTILINE)
    assert exercises >= 3
    names = [name for name, _ in verdicts[:exercises]]
    given = [(name, verdict) for verdict in ("not yet", "right") for name in names]
    assert verdicts[: 2 * exercises] == given, ran.stdout
    wrong = verdicts[2 * exercises :]  # those of tests/examples/notebook_answers
    assert {name for name, _ in wrong} == set(names) and {verdict for _, verdict in wrong} == {"wrong"}, ran.stdout
    assert int(re.search(r"^pictures: (\d+)$", ran.stdout, re.MULTILINE)[1]) >= 2


@each
def test_says_what_it_is_for(script):
    text = script.read_text()
    first = text.split("# %%", 2)[1]
    assert first.startswith(" [markdown]\n# # ")
    for word in ("**Goal**", "**You need**", "**Time**"):
        assert word in first, f"the first cell does not say {word}"
    assert [line for line in headings(text) if line.startswith("## ")][-3:] == [
        "## In the library",
        "## Exercises",
        "## Solutions",
    ]


@each
def test_links_lead_somewhere(script):
    prose = "\n".join(line for line in script.read_text().splitlines() if line.startswith("# "))
    for target in links(prose):
        assert target.startswith("https://") or (FOLDER / target).exists(), target


def test_the_page_of_the_course_names_every_notebook():
    page = (FOLDER / "README.md").read_text()
    for script in SCRIPTS:
        number_and_title = headings(script.read_text())[0].removeprefix("# ")
        assert f"[{number_and_title}]({script.stem}.ipynb)" in page
    for target in links(page):
        assert target.startswith("https://") or (FOLDER / target).exists(), target


@each
def test_the_notebook_shows_this_source(script):
    pytest.importorskip("jupytext")
    shown = json.loads(script.with_suffix(".ipynb").read_text())
    wanted = build.read(script)
    assert [cell["cell_type"] for cell in shown["cells"]] == [cell.cell_type for cell in wanted.cells]
    assert ["".join(cell["source"]) for cell in shown["cells"]] == [cell.source for cell in wanted.cells], (
        f"run python examples/notebooks/build.py {script.stem}"
    )
    outputs = [output for cell in shown["cells"] for output in cell.get("outputs", ())]
    assert outputs and not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]  # warnings
    assert all(cell["execution_count"] for cell in shown["cells"] if cell["cell_type"] == "code" and cell["source"])
    text = json.dumps(shown)
    assert str(ROOT) not in text and sys.prefix not in text


def test_a_kernel_of_jupyter_runs_the_first(tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    script = tmp_path / SCRIPTS[0].name
    script.write_text(SCRIPTS[0].read_text())
    build.build(script)
    cells = json.loads(script.with_suffix(".ipynb").read_text())["cells"]
    shown = json.loads(SCRIPTS[0].with_suffix(".ipynb").read_text())["cells"]
    kinds = [[output["output_type"] for output in cell.get("outputs", ())] for cell in cells]
    assert kinds == [[output["output_type"] for output in cell.get("outputs", ())] for cell in shown]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (lambda x: 2 * x, "right"),
        (lambda x: ..., "not yet: write it"),
        (lambda x: None, "not yet: write it"),
        (lambda x: x, "wrong: double([1.0, 2.0]) gave 2 at [1], wanted 4; think twice"),
        (lambda x: x[:1], "wrong: double([1.0, 2.0]) gave shape (1,), wanted (2,); think twice"),
        (lambda x: x * np.nan, "wrong: double([1.0, 2.0]) gave nan at [0], wanted 2; think twice"),
        (lambda x: 1 / 0, "wrong: double([1.0, 2.0]) raised ZeroDivisionError: division by zero"),
    ],
)
def test_check(answer, verdict, capsys):
    answer.__name__ = "double"
    checks.check(answer, [((np.array([1.0, 2.0]),), np.array([2.0, 4.0]))], "think twice")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"double: {verdict}")


def test_check_of_several_results(capsys):
    case = [((np.array([3.0]),), (np.array([3.0]), np.array([6.0])))]
    for results, verdict in ((2, "right"), (3, "wrong"), (1, "wrong")):

        def multiples(x, results=results):
            return [x, 2 * x] if results == 2 else (x, x, x)[:results]

        checks.check(multiples, case)
        assert capsys.readouterr().out.startswith(f"multiples: {verdict}")


def test_check_gives_copies():
    given = np.array([1.0])

    def spoil(x):
        x += 1
        return x

    checks.check(spoil, [((given,), np.array([2.0]))])
    assert given == 1
