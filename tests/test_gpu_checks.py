"""What the checks that need a GPU would do there, as far as it can be seen without one."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minigrad_kernels.interpreter import recording
from minigrad_kernels.toolchain.cuda.kernel import all_kernels

from .gpu import main, small
from .standin import installed

ROOT = Path(__file__).resolve().parents[1]


def test_the_sanitizer_sees_every_kernel():
    with recording() as launches:
        small.run_all("interpreter")
    assert {kernel.name for kernel in all_kernels()} - {name for name, _ in launches} == set()
    assert not any(report.faults for _, report in launches)


def test_parts_are_merged_into_one_file(tmp_path):
    file = tmp_path / "some-gpu.json"
    main.merge(file, "kernels", {"machine": {"gpu": "some"}, "seconds": 1})
    main.merge(file, "peers", {"machine": {"gpu": "some"}, "seconds": 2})
    main.merge(file, "kernels", {"machine": {"gpu": "some"}, "seconds": 3})
    parts = json.loads(file.read_text())["parts"]
    assert {name: part["seconds"] for name, part in parts.items()} == {"kernels": 3, "peers": 2}


@pytest.mark.skipif(os.name != "posix", reason="run_all is a shell script")
def test_without_cupy_it_says_what_is_missing(tmp_path):
    """Python finds a package called cupy here that cannot be imported."""
    (tmp_path / "cupy.py").write_text("raise ImportError('none here')")
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = [ROOT / "tests" / "gpu" / "run_all", "kernels", "--out", tmp_path / "out"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "needs CuPy and an NVIDIA GPU: none here" in done.stderr and not (tmp_path / "out").exists()


# ---- the parts themselves, on the stand-in for CuPy ------------------------------------------------------------------


@pytest.fixture
def part():
    """Imports a part anew, with the stand-in for CuPy."""
    with installed(forget=[f"tests.gpu.{name}" for name in ("timing", *main.PARTS)]):
        yield lambda name: importlib.import_module(f"tests.gpu.{name}")


def once(calls, **_):
    """In place of medians: every call once."""
    for call in calls.values():
        call()
    return dict.fromkeys(calls, (1.0, 0.1))


def test_kernels(part, monkeypatch):
    kernels = part("kernels")
    monkeypatch.setattr(kernels, "SIZES", (32,))
    monkeypatch.setattr(kernels, "SHAPES", [(8, 12, 700)])
    monkeypatch.setattr(kernels, "ROWS", 64)
    monkeypatch.setattr(kernels, "medians", once)
    monkeypatch.setattr(kernels, "host_microseconds", lambda call: call() or 1.0)
    found = kernels.run()
    rungs = {row["rung"] for row in found["products"]}
    assert {"cublas", "default", "plain", "tiled", "register", "vector", "buffered", "split"} <= rungs
    assert {row["kernel"] for row in found["memory_bound"]} >= {
        "copy",
        "bias_relu",
        "column_sums",
        "adam, 64 parameters",
    }
    assert set(found["host_microseconds"]) >= {"launch", "matmul.forward"}


@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_convolutions(part, direction):
    """Every rung that fits, beside the plain one in place of cuDNN."""
    convolutions = part("convolutions")
    arrays = convolutions._arrays(2, 4, 6, 8, 3, 1, 1)
    result, calls = convolutions._ours(direction, arrays, ((1, 1), (1, 1), (1, 1), 1))
    calls["plain"]()
    fitting = convolutions._checked("small", direction, calls, result, result.copy(), work=1)
    assert {"default", "plain"} < set(fitting)


def test_training(part):
    """A short run in place of the job, on the CPU: the command of the package starts a process of its own."""
    training = part("training")
    row = {"job": "digits", "command": "minigrad train --data digits --model mlp", "test_accuracy": 100.5}
    found = training.job(row, "cpu", ("--epochs", "1"))
    assert found["same_bits_twice"] and found["failed"], "one epoch is too few"
    assert training.job(row | {"test_accuracy": 1.0}, "cpu", ("--epochs", "1"))["failed"] is False


def test_timing(part):
    timing = part("timing")
    found = timing.medians({"short": lambda: time.sleep(1e-4), "long": lambda: time.sleep(1e-3)}, rounds=3, budget=0.02)
    assert found["short"][0] < found["long"][0]
    assert timing.host_microseconds(lambda: time.sleep(1e-4), count=3, rounds=3) > 90


def test_results_say_what_they_were_measured_with(part):
    found = main.machine()
    assert (found["gpu"], found["driver"], found["multiprocessors"]) == ("stand-in", 13000, 132)
    json.dumps(found)


def test_parts_are_the_files_that_run():
    files = (ROOT / "tests" / "gpu").glob("*.py")
    assert set(main.PARTS) == {path.stem for path in files if "\ndef run():\n" in path.read_text()}
