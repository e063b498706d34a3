"""What the checks that need a GPU would do there, as far as it can be seen without one."""

import importlib
import json
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

from minigrad_kernels.interpreter import array, recording
from minigrad_kernels.toolchain.cuda.kernel import all_kernels

from .gpu import main, small

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


# ---- the parts themselves, on a CuPy whose arrays are those of the interpreter ---------------------------------------


def stand_in():
    """A module with as much of CuPy as the parts use; its events tell the time of the host."""
    rng, cupy = np.random.default_rng(0), types.ModuleType("cupy")
    for name in ("float32", "float64", "uint8", "nan", "linalg", "copyto", "split", "newaxis"):
        setattr(cupy, name, getattr(np, name))
    made = lambda function: lambda *arguments, **options: array(function(*arguments, **options))
    for name in ("empty", "zeros", "empty_like", "zeros_like", "asarray"):
        setattr(cupy, name, made(getattr(np, name)))
    cupy.matmul = lambda a, b, out=None: array(np.matmul(a, b)) if out is None else np.matmul(a, b, out=out)
    cupy.random = types.SimpleNamespace(standard_normal=made(rng.standard_normal))

    class Event:
        def record(self):
            self.time = time.perf_counter()

        def synchronize(self):
            pass

    cupy.cuda = types.SimpleNamespace(
        Event=Event,
        get_elapsed_time=lambda begin, end: 1000 * (end.time - begin.time),
        Device=lambda: types.SimpleNamespace(synchronize=lambda: None),
    )
    return cupy


@pytest.fixture
def part(monkeypatch):
    """Imports a part anew, with the stand-in for CuPy."""

    def load(name):
        monkeypatch.setitem(sys.modules, "cupy", stand_in())
        for module in ("timing", name):
            monkeypatch.delitem(sys.modules, f"tests.gpu.{module}", raising=False)
        return importlib.import_module(f"tests.gpu.{name}")

    yield load
    for name in ("timing", *main.PARTS):
        sys.modules.pop(f"tests.gpu.{name}", None)


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


def test_training(part, monkeypatch):
    training = part("training")
    monkeypatch.setattr(training, "EPOCHS", 1)
    monkeypatch.setattr(training, "BATCH", 512)
    found = training.run()
    assert found["failed"], "one epoch is too few"
    assert abs(found["cpu"]["losses"][0] - found["cuda"]["losses"][0]) < 1e-3


def test_timing(part):
    timing = part("timing")
    found = timing.medians({"short": lambda: time.sleep(1e-4), "long": lambda: time.sleep(1e-3)}, rounds=3, budget=0.02)
    assert found["short"][0] < found["long"][0]
    assert timing.host_microseconds(lambda: time.sleep(1e-4), count=3, rounds=3) > 90


def test_parts_exist():
    for part in main.PARTS:
        assert (ROOT / "tests" / "gpu" / f"{part}.py").exists()
    assert set(main.PARTS) == {"correctness", "sanitizer", "kernels", "training", "peers"}
