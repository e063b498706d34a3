"""Notebooks that declare kernels run where no compiler is installed, from an archive that MINIGRAD_PTX names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad_kernels.toolchain.cuda import compiler

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"
SCRIPTS = [script for script in sorted(FOLDER.glob("[0-9][0-9]_*.py")) if "@kernel(" in script.read_text()]
RUN = f"""
import runpy, sys
sys.argv = ["notebook_run.py", sys.argv[1]]
runpy.run_path({str(Path(__file__).parent / "notebook_run.py")!r}, run_name="__main__")
"""
PACK = """
from minigrad_kernels.toolchain.cuda import KERNELS, cache
cache.pack("{}", [kernel for kernel in KERNELS.values() if "kept" in vars(kernel)])
"""
NO_COMPILER = "import sys; sys.modules['numba_cuda'] = None"


def run(program, script, tmp_path, **settings):
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "kernels")))
    env = os.environ | {"PYTHONPATH": paths, "MPLCONFIGDIR": str(tmp_path)} | settings
    command = [sys.executable, "-c", program, str(script)]
    return subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, text=True, timeout=180)


@pytest.mark.deep
@pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_runs_without_a_compiler(script, tmp_path):
    archive = tmp_path / "ptx.zip"
    compiled = run(RUN + PACK.format(archive.as_posix()), script, tmp_path)
    assert compiled.returncode == 0, compiled.stderr[-3000:]
    alone = {"MINIGRAD_CACHE": str(tmp_path / "empty"), "MINIGRAD_PTX": str(archive)}
    packed = run(NO_COMPILER + RUN, script, tmp_path, **alone)
    assert packed.returncode == 0, packed.stderr[-3000:]
    assert packed.stdout == compiled.stdout, "the lines of faults among it"
