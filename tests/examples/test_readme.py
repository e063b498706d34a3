"""What the README says is so: its code runs, its commands exist, its figures are those of the results files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad_kernels.toolchain.cuda import compiler

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
DOCS = REPOSITORY / "examples" / "docs"
KERNELS_PAGE = (DOCS / "gpu-kernels.md").read_text()
PAGES = [README, *((DOCS / f"{name}.md").read_text() for name in ("devices", "parallel", "training"))]
PAGES.append((REPOSITORY / "examples" / "README.md").read_text())


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


CODE = [code for page in PAGES for code in blocks("python", page)]


@pytest.mark.parametrize("code", CODE, ids=lambda code: max(code.splitlines(), key=len)[:40])
def test_code_runs(code, tmp_path):
    """In a folder of its own, for the files that some write."""
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=paths)
    assert done.returncode == 0, done.stderr
    if "epoch in range(3)" in code and "digits()" in code:
        losses = [float(loss) for loss in re.findall(r"epoch \d: loss (\S+)", done.stdout)]
        assert len(losses) == 3 and losses[2] < losses[0]
    if "Net()" in code:
        assert done.stdout == "batch_norm_relu\nconv2d_relu\n"


@pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
@pytest.mark.parametrize("code", blocks("python", KERNELS_PAGE), ids=lambda code: code.splitlines()[1])
def test_code_of_the_page_about_kernels_runs(code, tmp_path):
    (tmp_path / "page.py").write_text(code)  # a file, so that faults can show the source
    done = subprocess.run([sys.executable, "-W", "error", tmp_path / "page.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "mistake" in code:
        assert "page.py:9: out[i] = factor * x[i]" in done.stdout
    if "rung" in code:
        read = {"plain": 128**3, "tiled": 128**2 * 4, "buffered": 128**2}  # elements of a
        for name, elements in read.items():
            assert re.search(rf"matmul_{name}\w*: reads {4 * elements} bytes of a", done.stdout), done.stdout


def test_the_new_op_of_the_page_for_contributors_is_right():
    import numpy as np

    from minigrad import Tensor, gradcheck, gradgradcheck

    (code,) = (
        code for code in blocks("python", (REPOSITORY / "tests" / "README.md").read_text()) if "def atan" in code
    )
    names = {}
    exec(code, names)
    x = Tensor(np.array([0.5, -2.0, 3.0]), requires_grad=True)
    assert gradcheck(names["atan"], [x]) and gradgradcheck(names["atan"], [x])


def test_two_commands_do_all_the_set_up():
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].endswith("minigrad train") and commands[1].endswith("-m pytest -q -n auto")


def test_figures_are_those_of_the_results_files():
    command = [sys.executable, str(REPOSITORY / "tests" / "benchmarks" / "readme.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
