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
sys.path.insert(0, str(FOLDER))

import build  # noqa: E402
import checks  # noqa: E402

LONG = [pytest.param(script, marks=pytest.mark.deep) for script in SCRIPTS[1:]]


@pytest.mark.parametrize("script", [SCRIPTS[0], *LONG], ids=lambda script: script.stem)
def test_runs(script, tmp_path):
    # The working folder is Jupyter's, that of the notebook, so that paths in it are tried as a reader uses them.
    command = [sys.executable, str(Path(__file__).parent / "notebook_run.py"), str(script)]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "kernels")))
    env = os.environ | {"PYTHONPATH": paths, "MPLCONFIGDIR": str(tmp_path)}
    ran = subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr[-3000:]
    exercises = len(re.findall(r"^# ### Exercise", script.read_text(), re.MULTILINE))
    verdicts = re.findall(r"^(\w+): (right|wrong|not yet)\b", ran.stdout, re.MULTILINE)
    assert exercises >= 3
    names = [name for name, _ in verdicts[:exercises]]
    assert verdicts == [(name, verdict) for verdict in ("not yet", "right") for name in names], ran.stdout
    assert int(re.search(r"^pictures: (\d+)$", ran.stdout, re.MULTILINE)[1]) >= 2


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
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


@pytest.mark.deep
def test_a_kernel_of_jupyter_runs_the_first(tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    script = tmp_path / SCRIPTS[0].name
    script.write_text(SCRIPTS[0].read_text())
    build.build(script)
    kinds = lambda path: [
        [output["output_type"] for output in cell.get("outputs", ())] for cell in json.loads(path.read_text())["cells"]
    ]
    assert kinds(script.with_suffix(".ipynb")) == kinds(SCRIPTS[0].with_suffix(".ipynb"))


def test_checks_say_what_is_wrong(capsys):
    double, said = ((np.array([1.0, 2.0]),), np.array([2.0, 4.0])), "answer: wrong: answer([1.0, 2.0])"
    for answer, verdict in (
        (lambda x: 2 * x, "answer: right"),
        (lambda x: ..., "answer: not yet: write it"),
        (lambda x: x, f"{said} gave 2 at [1], wanted 4; think twice"),
        (lambda x: x[:1], f"{said} gave shape (1,), wanted (2,); think twice"),
        (lambda x: x * np.nan, f"{said} gave nan at [0], wanted 2; think twice"),
        (lambda x: 1 / 0, f"{said} raised ZeroDivisionError: division by zero"),
        (lambda x: np.add(x, 1, out=x), said),  # of a copy
    ):
        answer.__name__ = "answer"
        checks.check(answer, [double], "think twice")
        assert capsys.readouterr().out.startswith(verdict) and double[0][0][0] == 1
