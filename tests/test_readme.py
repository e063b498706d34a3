"""What the README says is so: its code runs, its commands exist, its figures are those of the results files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad_kernels.toolchain.cuda import compiler

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text()
KERNELS_PAGE = (REPOSITORY / "examples" / "docs" / "gpu-kernels.md").read_text()
GPU_PAGE = (REPOSITORY / "examples" / "docs" / "gpu.md").read_text()
CPU_PAGE = (REPOSITORY / "examples" / "docs" / "cpu.md").read_text()
PARALLEL_PAGE = (REPOSITORY / "examples" / "docs" / "parallel.md").read_text()
EXAMPLES_PAGE = (REPOSITORY / "examples" / "README.md").read_text()
PROFILE_PAGE = (REPOSITORY / "examples" / "docs" / "profile.md").read_text()


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


CODE = [
    code
    for page in (README, CPU_PAGE, GPU_PAGE, PARALLEL_PAGE, PROFILE_PAGE, EXAMPLES_PAGE)
    for code in blocks("python", page)
]


@pytest.mark.parametrize("code", CODE, ids=lambda code: max(code.splitlines(), key=len)[:40])
def test_code_runs(code, tmp_path):
    """In a folder of its own, for the files that some write."""
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=paths)
    assert done.returncode == 0, done.stderr
    if "slope" in code:
        assert "slope 27, curvature 18" in done.stdout
    if "Net()" in code:
        assert done.stdout == "batch_norm_relu\nconv2d_relu\n"
    if "rung" in code:
        read = {"plain": 128**3, "tiled": 128**2 * 4, "buffered": 128**2}  # elements of a
        for name, elements in read.items():
            assert re.search(rf"matmul_{name}\w*: reads {4 * elements} bytes of a", done.stdout), done.stdout


@pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
@pytest.mark.parametrize("code", blocks("python", KERNELS_PAGE), ids=lambda code: code.splitlines()[1])
def test_code_of_the_page_about_kernels_runs(code, tmp_path):
    (tmp_path / "page.py").write_text(code)  # a file, so that faults can show the source
    done = subprocess.run([sys.executable, "-W", "error", tmp_path / "page.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "mistake" in code:
        assert "page.py:9: out[i] = factor * x[i]" in done.stdout


def test_the_new_op_of_the_readme_is_right():
    import numpy as np

    from minigrad import Tensor
    from minigrad.check import gradcheck, gradgradcheck

    (code,) = (code for code in blocks("python") if "def atan" in code)
    names = {}
    exec(code, names)
    x = Tensor(np.array([0.5, -2.0, 3.0]), requires_grad=True)
    assert gradcheck(names["atan"], [x]) and gradgradcheck(names["atan"], [x])


def test_two_commands_do_all_the_set_up():
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].endswith("minigrad train") and commands[1].endswith("-m pytest -q")


def test_example_is_short():
    (code,) = (code for code in blocks("python") if "import minigrad\n" in code)
    assert 18 <= len(code.splitlines()) <= 26


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (REPOSITORY / target).exists(), target


def test_figures_are_those_of_the_results_files():
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "tests" / "benchmarks" / "readme.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_tables_of_a_gpu_come_from_its_results_file():
    from .benchmarks.readme import gpu_tables

    machine = {"gpu": "Some GPU", "cupy": "14.2.0", "numba": "0.68.1", "date": "2026-11-21", "commit": "abc"}
    networks = [dict(network="lenet", task="train", batch=64, minigrad=20, torch=10, ratio=2.0)]
    directions = "forward", "input_grad", "weight_grad"
    rows = [
        dict(layer="first", direction=direction, rung=rung, tflops=tflops, of_cudnn=0.5)
        for direction in directions
        for rung, tflops in (("plain", 1), ("default", 8))
    ]
    parts = {
        "networks": {"machine": machine, "images_per_second": networks},
        "convolutions": {"machine": machine, "rows": rows},
    }
    text = "\n".join(gpu_tables({"parts": parts}))
    assert "| lenet | train | 64 | 20 | 10 | 2.0 |" in text and text.count("Some GPU, cupy 14.2.0") == 2
    assert "| first | 8 (0.5) | 8 (0.5) | 8 (0.5) |" in text
    assert gpu_tables({"parts": {"networks": parts["networks"] | {"failed": True}}}) == []
