"""What the checks that need a GPU would do there, as far as it can be seen without one."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minigrad import nn
from minigrad_kernels.interpreter import recording
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.device.stand_in_gpus import gpus
from tests.standin import installed

from . import correctness, main, sanitizer, small

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[2]


def test_the_sanitizer_sees_every_kernel(capsys, monkeypatch):
    with recording() as launches:
        small.main("interpreter")
    assert {kernel.name for kernel in all_kernels()} - {name for name, _ in launches} == set()
    assert not any(report.faults for _, report in launches)
    assert capsys.readouterr().out.strip() == small.LAST.replace("cuda", "interpreter")
    monkeypatch.setattr(sanitizer, "LIMIT", 5)
    for code, said in (
        (f"print({small.LAST!r})", "clean"),
        (f"print({small.LAST[:-1]!r})", "exit code 0: "),
        (f"print({small.LAST!r}), print('3 errors'), exit(99)", "exit code 99: 3 errors"),
        ("import time; time.sleep(60)", "not finished in 5 s"),
    ):
        assert sanitizer.outcome([sys.executable, "-c", code]).startswith(said)


def test_the_tables_run_on_a_device():
    found = {path.name for path in correctness.files()}
    assert {"test_kernels_cuda.py", "test_optimizer.py", "test_rungs.py"} < found and len(found) > 6
    assert all(path.exists() for path in correctness.OPS)


# ---- parts and their file --------------------------------------------------------------------------------------------


def paths(first=""):
    """The environment of a process that finds this repository."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([*filter(None, [first]), str(ROOT), str(ROOT / "kernels")])}


ENDINGS = {  # what a part does: (whether it failed, why)
    "found['rows'] = [1]": (False, None),
    "found['rows'] = [1]; raise RuntimeError('no such luck')": (True, "RuntimeError: no such luck"),
    "found['rows'] = [1]; import time; time.sleep(60)": (True, "not finished in 2 s"),
    "found['rows'] = [1]; import os; os._exit(3)": (True, "ended without a word"),
}


@pytest.mark.skipif(os.name != "posix", reason="run_all is a shell script")
@pytest.mark.parametrize("body", ENDINGS)
def test_a_part_that_fails_leaves_what_it_found_and_all_other_sections(body, tmp_path, monkeypatch):
    """A part of this name is put in the place of the real one, in a process that is started as main starts it."""
    code = f"import sys, types; part = types.ModuleType('tests.gpu.networks')\ndef run(found): {body}\npart.run = run\n"
    code += "sys.modules['tests.gpu.networks'] = part; from tests.gpu import main; sys.exit(main.main())"
    (tmp_path / "python").write_text(f"#!{sys.executable}\nimport sys; del sys.argv[1:4]\n{code}")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PYTHONPATH", paths()["PYTHONPATH"])
    file, here = tmp_path / "some-gpu-80gb.json", {"gpu": "Some GPU, 80GB"}
    main.merge(file, "kernels", {"seconds": 1})
    failed, why = ENDINGS[body]
    assert main.run_part("networks", tmp_path, 2, here) is not failed
    parts = json.loads(file.read_text())["parts"]
    assert parts["kernels"] == {"seconds": 1}
    section = parts["networks"]
    assert section["machine"] == here and section.get("failed", False) is failed and section.get("why") == why
    assert section.get("rows") == (None if why == "ended without a word" else [1])


@pytest.mark.skipif(os.name != "posix", reason="run_all is a shell script")
def test_without_cupy_it_says_what_is_missing(tmp_path):
    """Python finds a package called cupy here that cannot be imported."""
    (tmp_path / "cupy.py").write_text("raise ImportError('none here')")
    environment = paths(str(tmp_path)) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [ROOT / "tests" / "gpu" / "run_all", "kernels", "--out", tmp_path / "out"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "needs CuPy and an NVIDIA GPU: none here" in done.stderr and not (tmp_path / "out").exists()


def test_parts_are_the_files_that_run():
    files = (ROOT / "tests" / "gpu").glob("*.py")
    assert set(main.PARTS) == {path.stem for path in files if "\ndef run(found):\n" in path.read_text()}
    assert all(f"\n{part} " in main.__doc__ for part in main.PARTS)


# ---- the parts themselves, on the stand-in for CuPy ------------------------------------------------------------------


SHARED = "timing", "kinds", "contenders"  # modules of parts that import CuPy


@pytest.fixture
def part(monkeypatch):
    """Imports a part anew, with the stand-in for CuPy, and other values for some of its names."""

    def get(name, **values):
        found = importlib.import_module(f"tests.gpu.{name}")
        for key, value in values.items():
            monkeypatch.setattr(found, key, value)
        return found

    with installed(forget=[f"tests.gpu.{name}" for name in (*SHARED, *main.PARTS)]):
        yield get


def once(calls, **_):
    """In place of medians: every call once."""
    for call in calls.values():
        call()
    return dict.fromkeys(calls, (1.0, 0.1))


def test_kernels(part):
    found = {}
    part("kernels", ROWS=64, medians=once, host_microseconds=lambda call: call() or 1.0).run(found)
    named = {"copy", "bias_relu_grad", "column_sums", "adam, 64 parameters"}
    assert {row["kernel"] for row in found["memory_bound"]} >= named
    assert set(found["host_microseconds"]) >= {"launch", "matmul.forward"}


def test_steps_and_graphs(part, monkeypatch):
    with gpus(1):
        found = {}
        part("steps", BATCHES={"lenet": 3}, STEPS=2).run(found)
        (row,) = found["networks"]
        assert not found["failed"] and row["same_bits_twice"] and 0 < row["loss_off"] < 1e-4
        graphs = part("graphs")
        layers = lambda: (nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
        monkeypatch.setattr(graphs.models, "build", lambda name, shape: nn.Sequential(*layers()))
        row = graphs.compared("lenet", 2, steps=4)
        assert not row["failed"] and row["same_bits"] and row["launches_replayed"] == 0 < row["launches_eager"]
        assert graphs.refused()


def test_profiles(part):
    with gpus(1):
        profiles, found = part("profiles", NETWORK="lenet", BATCH=3, WARMING=1, STEPS=2), {}
        profiles.run(found)
        assert not found["failed"] and found["totals"]["device"] > 0 and found["device_milliseconds"]["Adam.step"] > 0


def test_training(part):
    """A short run in place of the job, on the CPU: the command of the package starts a process of its own."""
    row = {"job": "digits", "command": "minigrad train --data digits --model mlp", "test_images": 359}
    found = part("training").job(row | {"test_accuracy": 101.0}, "cpu", ("--epochs", "1"))
    assert found["same_bits_twice"] and found["failed"], "one epoch is too few"


def test_timing_and_machine(part):
    timing = part("timing", FILL=1 << 10)
    found = timing.medians({"short": lambda: time.sleep(1e-4), "long": lambda: time.sleep(1e-3)}, rounds=3, budget=0.02)
    assert found["short"][0] < found["long"][0]
    assert timing.host_microseconds(lambda: time.sleep(1e-4), count=3, rounds=3) > 90
    found = main.machine()
    assert (found["gpu"], found["driver"], found["multiprocessors"]) == ("stand-in", 13000, 132)
    json.dumps(found)
