"""What the checks that need a GPU would do there, as far as it can be seen without one."""

import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from minigrad import nn
from minigrad_kernels.interpreter import recording
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.device.stand_in_gpus import gpus
from tests.standin import installed

from . import correctness, hopper, main, ops, sanitizer, small

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.deep
def test_the_sanitizer_sees_every_kernel(capsys):
    with recording() as launches:
        small.main("interpreter")
    assert {kernel.name for kernel in all_kernels()} - {name for name, _ in launches} == set()
    assert not any(report.faults for _, report in launches)
    assert capsys.readouterr().out.strip() == small.LAST.replace("cuda", "interpreter")


@pytest.mark.parametrize(
    "code, said",
    [
        (f"print({small.LAST!r})", "clean"),
        (f"print('interpreted only'), print({small.LAST[:-1]!r})", "exit code 0: "),
        (f"print({small.LAST!r}), print('3 errors'), exit(99)", "exit code 99: 3 errors"),
        ("exit(1)", "exit code 1: no output"),
        ("import time; time.sleep(9)", "not finished in 1 s"),
    ],
)
def test_the_sanitizer_is_clean_only_where_every_kernel_ran(code, said, monkeypatch):
    monkeypatch.setattr(sanitizer, "LIMIT", 1)
    assert sanitizer.outcome([sys.executable, "-c", code]).startswith(said)


def test_the_tables_are_all_that_run_on_a_device():
    """Every file of tests that asks on which device it is to run."""
    files = (ROOT / "tests").glob("test_*.py")
    asking = {
        path.name for path in files if re.search("^from .*kernel_runs import [^#]*DEVICE", path.read_text(), re.M)
    }
    assert asking == {*correctness.FILES, *ops.FILES}
    assert len(correctness.FILES) == len(set(correctness.FILES))


def test_tests_are_counted(tmp_path):
    """In a process of its own, as the part is."""
    (tmp_path / "test_some.py").write_text(
        "import os, pytest, warnings\n"
        "def test_here(): assert os.environ['MINIGRAD_TEST_DEVICE'] == 'cuda'; warnings.warn('old')\n"
        "def test_wrong(): assert False\n"
        "@pytest.mark.skip\ndef test_later(): pass\n"
    )
    code = "import json; from tests.gpu.correctness import run_tests; found = {}\n"
    code += f"run_tests(found, [{str(tmp_path / 'test_some.py')!r}]); print(json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=paths(), capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    (failed,) = found.pop("failed_tests")
    assert found == {"passed": 1, "skipped": 1, "failed": True} and failed.endswith("test_some.py::test_wrong")


# ---- parts and their file --------------------------------------------------------------------------------------------


def paths(first=""):
    """The environment of a process that finds this repository."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([*filter(None, [first]), str(ROOT), str(ROOT / "kernels")])}


def test_parts_are_merged_into_one_file(tmp_path):
    file = tmp_path / "some-gpu.json"
    main.merge(file, "kernels", {"machine": {"gpu": "some"}, "seconds": 1})
    main.merge(file, "networks", {"machine": {"gpu": "some"}, "seconds": 2})
    main.merge(file, "kernels", {"machine": {"gpu": "some"}, "seconds": 3})
    parts = json.loads(file.read_text())["parts"]
    assert {name: part["seconds"] for name, part in parts.items()} == {"kernels": 3, "networks": 2}


ENDINGS = {  # what a part does: (whether it failed, why)
    "found['rows'] = [1]": (False, None),
    "found['rows'] = [1]; found['failed'] = True": (True, None),
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


SHARED = "timing", "kinds", "contenders", "energy"  # modules of parts that import CuPy


@pytest.fixture
def part():
    """Imports a part anew, with the stand-in for CuPy."""
    with installed(forget=[f"tests.gpu.{name}" for name in (*SHARED, *main.PARTS)]):
        yield lambda name: importlib.import_module(f"tests.gpu.{name}")


def once(calls, **_):
    """In place of medians: every call once."""
    for call in calls.values():
        call()
    return dict.fromkeys(calls, (1.0, 0.1))


def test_kernels(part, monkeypatch):
    kernels, found = part("kernels"), {}
    monkeypatch.setattr(kernels, "ROWS", 64)
    monkeypatch.setattr(kernels, "medians", once)
    monkeypatch.setattr(kernels, "host_microseconds", lambda call: call() or 1.0)
    kernels.run(found)
    named = {"copy", "bias_relu_grad", "column_sums", "adam, 64 parameters"}
    assert {row["kernel"] for row in found["memory_bound"]} >= named
    assert set(found["host_microseconds"]) >= {"launch", "matmul.forward"}


def test_steps(part, monkeypatch):
    with gpus(1):
        steps, found = part("steps"), {}
        monkeypatch.setattr(steps, "BATCHES", {"lenet": 3})
        monkeypatch.setattr(steps, "STEPS", 2)
        steps.run(found)
        (row,) = found["networks"]
        assert not found["failed"] and row["same_bits_twice"] and 0 < row["loss_off"] < 1e-4
    for runs in ([(1, 0), (1, 1), (1, 0)], [(1, 0), (1, 0), (2, 0)], [(np.nan, 0), (np.nan, 0), (1, 0)]):
        results = iter([(np.array([float(loss)]), [np.array(weight)]) for loss, weight in runs])
        monkeypatch.setattr(steps, "trained", lambda name, size, place: next(results))  # noqa: B023
        assert steps.compared("lenet", 3)["failed"]


def test_graphs(part, monkeypatch):
    with gpus(1):
        graphs = part("graphs")
        layers = lambda: (nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
        monkeypatch.setattr(graphs.models, "build", lambda name, shape: nn.Sequential(*layers()))
        row = graphs.compared("lenet", 2, steps=4)
        assert not row["failed"] and row["same_bits"] and row["launches_replayed"] == 0 < row["launches_eager"]
        assert graphs.refused()
    runs = iter([([1], b"a", 9), ([1], b"a", 1), ([1], b"a", 9), ([1], b"b", 0)])
    monkeypatch.setattr(graphs, "trained", lambda *arguments: next(runs))
    assert graphs.compared("lenet", 2)["failed"] and graphs.compared("lenet", 2)["failed"]


@pytest.mark.deep
def test_profiles(part, monkeypatch):
    with gpus(1):
        profiles, found = part("profiles"), {}
        for name, value in {"NETWORK": "lenet", "BATCH": 3, "WARMING": 1, "STEPS": 2}.items():
            monkeypatch.setattr(profiles, name, value)
        profiles.run(found)
        assert not found["failed"] and found["totals"]["device"] > 0 and found["device_milliseconds"]["Adam.step"] > 0
        model, profile, seconds = profiles.recorded()
        assert profiles.faults(model, profile, seconds / 1e6) == [
            "the device was busy longer than the steps took", "the calls add up to more than the whole"
        ]  # fmt: skip
        model.to("float64")
        assert profiles.faults(model, profile, seconds) == ["parameters"]


def test_training(part, monkeypatch):
    """A short run in place of the job, on the CPU: the command of the package starts a process of its own."""
    training = part("training")
    row = {"job": "digits", "command": "minigrad train --data digits --model mlp", "test_images": 359}
    row["test_accuracy"] = 101.0
    found = training.job(row, "cpu", ("--epochs", "1"))
    assert found["same_bits_twice"] and found["failed"], "one epoch is too few"
    for accuracy, same, failed in ((0.99, True, False), (0.99, False, True), (0.98, True, True)):
        runs = iter([({"test_accuracy": accuracy}, {"w": weights}, 1.0) for weights in (b"1", b"1" if same else b"2")])
        monkeypatch.setattr(training, "_run", lambda command, folder, device: next(runs))  # noqa: B023
        assert training.job(row | {"test_accuracy": 99.72})["failed"] is failed


def test_timing(part, monkeypatch):
    timing = part("timing")
    monkeypatch.setattr(timing, "FILL", 1 << 10)
    found = timing.medians({"short": lambda: time.sleep(1e-4), "long": lambda: time.sleep(1e-3)}, rounds=3, budget=0.02)
    assert found["short"][0] < found["long"][0]
    assert timing.host_microseconds(lambda: time.sleep(1e-4), count=3, rounds=3) > 90


def test_results_say_what_they_were_measured_with(part):
    found = main.machine()
    assert (found["gpu"], found["driver"], found["multiprocessors"]) == ("stand-in", 13000, 132)
    json.dumps(found)


@pytest.mark.parametrize("rung", hopper.RUNGS)
def test_the_rungs_of_hopper_are_tried_on_their_own(rung, monkeypatch):
    """What the process of its own does, here on the interpreter, and what is made of its end."""
    monkeypatch.setattr(hopper, "SIZES", hopper.SIZES[:1])
    hopper.attempt(rung, "interpreter")
    monkeypatch.setattr(hopper, "wanted", lambda case, inputs: [np.full(case.outputs[0].shape, 99.0)])
    with pytest.raises(AssertionError):
        hopper.attempt(rung, "interpreter")


ENDS = {"right": "", "AssertionError": "raise AssertionError", "not finished in 1 s": "import time; time.sleep(60)"}


@pytest.mark.parametrize("end", ENDS)
def test_a_rung_that_fails_alone_is_left_out(end, monkeypatch):
    real, found = subprocess.run, {}
    start = lambda command, **options: real([sys.executable, "-c", ENDS[end]], **options)
    monkeypatch.setattr(hopper.subprocess, "run", start)
    monkeypatch.setattr(hopper, "LIMIT", 30 if end != "not finished in 1 s" else 1)
    hopper.why_not.cache_clear()
    with installed(devices=1):
        hopper.run(found)
        assert small.runs_on("cuda", "tma") is (end == "right") and small.runs_on("cuda", "async")
    hopper.why_not.cache_clear()
    assert found["failed"] is (end != "right") and found["tma"].endswith(end)
