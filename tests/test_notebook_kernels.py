"""Notebooks that declare kernels run where no compiler is installed, from the PTX that lies beside them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minigrad_kernels.interpreter import interpret
from minigrad_kernels.toolchain.cuda import KERNELS, compiler, cuda, f32, kernel

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "notebooks"
SCRIPTS = [script for script in sorted(FOLDER.glob("[0-9][0-9]_*.py")) if "@portable" in script.read_text()]
sys.path.insert(0, str(FOLDER))

import portable  # noqa: E402

WITHOUT = """
import runpy, sys
sys.modules["numba_cuda"] = None
sys.argv = ["notebook_run.py", sys.argv[1]]
runpy.run_path("{program}", run_name="__main__")
"""


@pytest.fixture
def doubled(monkeypatch, tmp_path):
    """A kernel whose third line writes, and an empty folder for its PTX."""
    monkeypatch.setattr(portable, "FOLDER", tmp_path / "ptx")

    def make(factor):
        KERNELS.pop("tests_twice", None)

        @kernel("f32* x, i32 n", threads=32)
        def twice(x, n):
            i = cuda.threadIdx.x
            if i <= n:
                x[i] = f32(factor) * x[i]

        return twice

    yield make
    KERNELS.pop("tests_twice", None)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_runs_without_a_compiler(script, tmp_path):
    program = WITHOUT.format(program=ROOT / "tests" / "notebook_run.py")
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "kernels"))),
        "MPLCONFIGDIR": str(tmp_path),
    }
    command = [sys.executable, "-c", program, str(script)]
    ran = subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_every_shipped_kernel_belongs_to_a_notebook_or_an_example():
    text = "".join(script.read_text() for script in [*SCRIPTS, *FOLDER.parent.glob("*.py")])
    for file in (FOLDER / "ptx").glob("*.ptx"):
        name = file.stem
        while name and f"def {name}(" not in text:  # a variant comes after the function's name
            name = name.rpartition("_")[0]
        assert name, f"{file.name}: nothing declares it"
        assert str(ROOT) not in file.read_text()


@pytest.mark.skipif(compiler.missing() is not None, reason="there is no CUDA compiler")
def test_a_changed_kernel_is_compiled_and_kept(doubled):
    results = []
    for factor in (2, 3, 3):
        made = portable.portable(doubled(factor))
        x = np.ones(32, np.float32)
        report = interpret(made, (1,), (32,), (x, 31))
        assert not report.faults
        results.append(x[0])
        (file,) = portable.FOLDER.glob("*.ptx")
        assert file.stem == "twice" and __file__ not in file.read_text()
        assert f".entry {made.name}(" in made.ptx() and f".entry {made.name}(" not in file.read_text()
    assert results == [2, 3, 3]
    fault = interpret(made, (1,), (32,), (x[:16].copy(), 31)).faults[0]
    assert fault.line.text == "x[i] = f32(factor) * x[i]"


def test_without_a_compiler_a_changed_kernel_says_so(doubled, monkeypatch):
    monkeypatch.setattr(compiler, "missing", lambda: "it was taken away")
    with pytest.raises(RuntimeError, match="there is no CUDA compiler, it was taken away; pip install"):
        portable.portable(doubled(4))
