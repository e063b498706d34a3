"""What README and pages say is so: code runs, commands exist, figures are those of results files, links lead there."""

import importlib.util
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, gradcheck, gradgradcheck
from minigrad_kernels.toolchain.cuda import compiler

REPOSITORY = Path(__file__).resolve().parents[2]
README, EXAMPLES = (REPOSITORY / "README.md").read_text(), REPOSITORY / "examples"
DOCS = EXAMPLES / "docs"


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def of(page):
    """The Python code of a page of the documentation."""
    return blocks("python", (DOCS / f"{page}.md").read_text())


# ---- code ------------------------------------------------------------------------------------------------------------

CODE = [*blocks("python"), *sum(map(of, ("devices", "parallel", "training")), [])]
CODE += blocks("python", (EXAMPLES / "README.md").read_text())


@pytest.fixture
def ran(tmp_path, monkeypatch, capsys):
    """Runs code in a folder of its own, for the files that some writes; any warning is an error. Returns its output."""

    def run(code):
        monkeypatch.chdir(tmp_path)
        Path("page.py").write_text(code)  # a file, so that faults can show the source
        with warnings.catch_warnings(action="error"):
            runpy.run_path("page.py", run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("code", CODE, ids=lambda code: max(code.splitlines(), key=len)[:40])
def test_code_runs(code, ran):
    said = ran(code)
    if "epoch in range(3)" in code and "digits()" in code:
        losses = [float(loss) for loss in re.findall(r"epoch \d: loss (\S+)", said)]
        assert len(losses) == 3 and losses[2] < losses[0]
    if "Net()" in code:
        assert said == "batch_norm_relu\nconv2d_relu\n"


@pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
@pytest.mark.parametrize("code", of("gpu-kernels"), ids=lambda code: code.splitlines()[1])
def test_code_of_the_page_about_kernels_runs(code, ran):
    said = ran(code)
    if "mistake" in code:
        assert "page.py:9: out[i] = factor * x[i]" in said
    if "rung" in code:
        read = {"plain": 128**3, "tiled": 128**2 * 4, "buffered": 128**2}  # elements of a
        for name, elements in read.items():
            assert re.search(rf"matmul_{name}\w*: reads {4 * elements} bytes of a", said), said


def test_the_new_op_of_the_page_for_contributors_is_right():
    contributing = (REPOSITORY / "tests" / "README.md").read_text()
    (code,) = (code for code in blocks("python", contributing) if "def atan" in code)
    names = {}
    exec(code, names)
    x = Tensor(np.array([0.5, -2.0, 3.0]), requires_grad=True)
    assert gradcheck(names["atan"], [x]) and gradgradcheck(names["atan"], [x])


def test_the_tour_shows_the_code_as_it_is_and_its_programs_run(capsys):
    spec = importlib.util.spec_from_file_location("tour", DOCS / "tour.py")
    tour = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tour)
    for path, marks in zip(tour.PAGES, (10, 5, 5), strict=True):
        text = path.read_text()
        assert len(tour.MARK.findall(text)) > marks
        assert tour.filled(text) == text, "run: python examples/docs/tour.py"
    shown = re.finditer(r"(-->\n)?^```python\n(.*?)^```\n", tour.PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec("\n".join(found[2] for found in shown if not found[1]), {})
    assert capsys.readouterr().out.splitlines() == ["[3.0, 4.0]", "mul (2,)", "sum ()"]


def test_two_commands_do_all_the_set_up():
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].endswith("minigrad train") and commands[1].endswith("-m pytest -q -n auto")


def test_figures_are_those_of_the_results_files():
    command = [sys.executable, str(REPOSITORY / "tests" / "benchmarks" / "readme.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- links -----------------------------------------------------------------------------------------------------------


def prose(path):
    """The page without its blocks of code, where brackets mean something else."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(path):
    """What GitHub and Sphinx make of the headings."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_to_files_and_headings_and_reach_every_page():
    linked = set()
    for page in [REPOSITORY / "README.md", *EXAMPLES.rglob("*.md")]:
        for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
            if not link.startswith("https://"):
                target, _, anchor = link.partition("#")
                file = (page.parent / target).resolve() if target else page
                assert file.exists() and file.is_relative_to(REPOSITORY), f"{page}: there is no {link}"
                assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{page}: no heading makes {link}"
                linked.add(file)
    assert not {*DOCS.glob("*.md")} - linked - {DOCS / "index.md"}, "pages that no page links to"
