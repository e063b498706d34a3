"""What the checks that need a GPU would do there, as far as it can be seen without one: on the stand-in for CuPy."""

import json
import os
import sys
import time

import numpy as np
import pytest

from minigrad import nn
from minigrad.parallel.local import LocalTransport, run_local
from minigrad_kernels.interpreter import recording
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.standin.nccl import state

from . import correctness, main, small

pytestmark = pytest.mark.deep


def once(calls, **_):
    """In place of medians: every call once."""
    for call in calls.values():
        call()
    return dict.fromkeys(calls, (1.0, 0.1))


# ---- parts and their file --------------------------------------------------------------------------------------------


ENDINGS = {  # what a part does: (whether it failed, why)
    "found['rows'] = [1]": (False, None),
    "found['rows'] = [1]; raise RuntimeError('no such luck')": (True, "RuntimeError: no such luck"),
    "found['rows'] = [1]; import time; time.sleep(60)": (True, "not finished in 2 s"),
    "found['rows'] = [1]; import os; os._exit(3)": (True, "ended without a word"),
}


@pytest.mark.skipif(os.name != "posix", reason="processes are ended as a group")
@pytest.mark.parametrize("body", ENDINGS)
def test_a_part_that_fails_leaves_what_it_found_and_all_other_sections(body, tmp_path):
    """A part of this name is put in the place of the real one."""
    code = f"import sys, types; part = types.ModuleType('tests.gpu.race')\ndef race(found): {body}\npart.race = race\n"
    code += "sys.modules['tests.gpu.race'] = part; from tests.gpu import main; sys.exit(main.main())"
    file, here = tmp_path / "some-gpu-80gb.json", {"gpu": "Some GPU, 80GB"}
    main.merge(file, "kernels", {"seconds": 1})
    failed, why = ENDINGS[body]
    assert main.run_part("race", tmp_path, 2, here, ["-c", code]) is not failed
    parts = json.loads(file.read_text())["parts"]
    assert parts["kernels"] == {"seconds": 1}
    section = parts["race"]
    assert section["machine"] == here and section.get("failed", False) is failed and section.get("why") == why
    assert section.get("rows") == (None if why == "ended without a word" else [1])


def test_without_cupy_it_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(sys, "argv", ["run_all", "kernels", "--out", str(tmp_path / "out")])
    assert main.main() == 2 and not (tmp_path / "out").exists()
    assert "needs CuPy and an NVIDIA GPU: import of cupy halted" in capsys.readouterr().err


def test_parts_and_the_machine(part):
    for name in main.PARTS:
        assert callable(getattr(part(main.FILES.get(name, name)), name)) and f"\n{name} " in main.__doc__
    found = main.machine()
    assert (found["gpu"], found["driver"], found["multiprocessors"]) == ("stand-in", 13000, 132)
    json.dumps(found)


# ---- checks ----------------------------------------------------------------------------------------------------------


def test_the_sanitizer_sees_every_kernel(capsys, monkeypatch):
    with recording() as launches:
        small.main("interpreter")
    assert {kernel.name for kernel in all_kernels()} - {name for name, _ in launches} == set()
    assert not any(report.faults for _, report in launches)
    assert capsys.readouterr().out.strip() == small.LAST.replace("cuda", "interpreter")
    for code, said in (
        (f"print({small.LAST!r})", "clean"),
        (f"print({small.LAST[:-1]!r})", "exit code 0: "),
        (f"print({small.LAST!r}), print('3 errors'), exit(99)", "exit code 99: 3 errors"),
    ):
        assert small.outcome([sys.executable, "-c", code]).startswith(said)
    monkeypatch.setattr(small, "LIMIT", 1)
    assert small.outcome([sys.executable, "-c", "import time; time.sleep(60)"]) == "not finished in 1 s"


def test_the_tables_run_on_a_device(tmp_path, monkeypatch):
    names, found = {path.name for path in correctness.files()}, {}
    assert {"test_kernels_cuda.py", "test_optimizer.py", "test_rungs.py"} < names and len(names) > 6
    assert all(path.exists() for path in correctness.OPS)
    monkeypatch.setattr(correctness, "WORKERS", 1)
    (tmp_path / "test_it.py").write_text("def test_right(): pass\ndef test_wrong(): assert 0\n")
    correctness.run_tests(found, [tmp_path])
    assert found.pop("failed_tests")[0].endswith("test_it.py::test_wrong")
    assert found == {"passed": 1, "skipped": 0, "failed": True}


def test_graphs(part, monkeypatch):
    in_turns = lambda steps: {name: step(0) is None or 0.5 for name, step in steps.items()}
    steps = part("graphs", BATCH=2, STEPS=4, in_turns=in_turns)
    layers = lambda: (nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
    monkeypatch.setattr(steps.models, "build", lambda name, shape: nn.Sequential(*layers()))
    row = steps.compared("lenet") | steps.times("lenet")
    assert not row["failed"] and row["same_bits_twice"] and row["same_bits"] and 0 < row["loss_off"] < 1e-4
    assert row["launches_replayed"] == 0 < row["launches_eager"] and row["replayed_milliseconds"] == 500
    assert steps.refused()


def test_training(part):
    """A short run in place of the job, on the CPU: the command of the package starts a process of its own."""
    row = {"job": "digits", "command": "minigrad train --data digits --model mlp", "test_images": 359}
    found = part("training").job(row | {"test_accuracy": 101.0}, "cpu", ("--epochs", "1"))
    assert found["same_bits_twice"] and found["failed"], "one epoch is too few"


@pytest.fixture
def ranks(part, monkeypatch):
    """The checks of ranks, with little to do."""
    found = part("ranks", ELEMENTS=64, BATCH=4, STEPS=1)
    small_network = lambda name, shape: nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
    monkeypatch.setattr(found.models, "build", small_network)
    return part("ranks", ROWS=[row for row in found.ROWS if row.size in (7, 20_001)])


def test_ranks(ranks, ran):
    state().version = 22903
    found = ran("ranks")
    assert not found["failed"] and found["wrong"] == [], found
    assert found["replicas"] == {"same_bits_as_one_rank": True} and found["collectives"]["cases"] > 100
    assert found["several"] == "not run: NCCL 2.29.3, wants 2.30"


def test_several_ranks_on_a_gpu(ranks, monkeypatch, capsys):
    """Threads in place of processes; none of them is missing, so what is said then is made up."""

    def as_threads(size, what):
        if what == "absent":
            return 75, "label=late): rank 0: not done after 8 s"
        run_local(lambda world: ranks.as_rank(what), size)
        return 0, capsys.readouterr().out

    monkeypatch.setattr(LocalTransport, "backend", "nccl")
    monkeypatch.setattr(ranks, "processes", as_threads)
    for name, value in ranks.SETTINGS.items():
        monkeypatch.setenv(name, value)
    found = ranks.several()
    assert found["2 ranks"] == [str(len(ranks.ROWS[:: ranks.FEWER]))] * 2 and found["same_bits_as_one_rank"]


# ---- measurements ----------------------------------------------------------------------------------------------------


def test_timing(part):
    timing = part("timing", FILL=1 << 10)
    short, long = (lambda *_, seconds=seconds: time.sleep(seconds) for seconds in (1e-4, 1e-3))
    found = timing.medians({"short": short, "long": long}, rounds=3, budget=0.02)
    assert found["short"][0] < found["long"][0]
    found = timing.in_turns({"short": short, "long": long}, rounds=3, seconds=0.01)
    assert 1e-4 < found["short"] < found["long"]


def test_kernels(ran):
    found = ran("kernels", ROWS=64, medians=once)
    named = {"copy", "bias_relu_grad", "column_sums", "adam, 64 parameters"}
    assert {row["kernel"] for row in found["memory_bound"]} >= named


def test_profiles(ran):
    found = ran("profiles", NETWORK="lenet", BATCH=3, WARMING=1, STEPS=2)
    assert not found["failed"] and found["totals"]["device"] > 0 and found["device_milliseconds"]["Adam.step"] > 0


TYPES = {"float32": 23, "tf32": 9, "float16": 9, "bfloat16": 6}
ALONE = {"set_torch": lambda kind: None, "medians": once}  # the stand-in has no cuBLAS that PyTorch could share


def test_products(part, ran):
    """Every rung in every type, beside NumPy."""
    part("ladders", **ALONE, SIZES=(16,), SHAPES=[], _cublas=lambda a, b, out: lambda: None)
    found = ran("products", runs_on=lambda device, rung: rung != "tma")
    assert not found["failed"], found["wrong"]
    kinds = part("ladders").KINDS
    assert {kind.name: kind.digits for kind in kinds} == TYPES
    for kind in TYPES:
        assert {"cublas", "default"} < {row["rung"] for row in found["rows"] if row["kind"] == kind}, kind
    assert {"plain", "tiled", "register", "buffered", "tensor", "async"} <= {row["rung"] for row in found["rows"]}
    found = ran("products", KINDS=[kinds[0]._replace(digits=60)])
    assert found["failed"] and {row["rung"] for row in found["rows"]} == {"cublas"}
    assert found["wrong"][0].startswith("float32 16 16 16 NN default: off by ")


def test_convolutions(part, ran):
    """Every rung that fits, in every type, beside the plain rung in float64 in place of cuDNN."""

    def plain(direction, arrays, stride, padding):
        geometry = ((stride,) * 2, (padding,) * 2, (1, 1), 1)
        result, ours = ladders._ours(direction, *(array.astype(np.float64) for array in arrays), geometry)
        ours["plain"]()
        return {"cudnn NCHW": lambda: None}, result.copy()

    ladders = part("ladders", **ALONE, LAYERS=[("small", 1, 8, 4, 8, 3, 1, 1)], _cudnn=plain)
    found = ran("convolutions")
    assert not found["failed"], found["wrong"]
    for direction in ("forward", "input_grad", "weight_grad"):
        for kind in TYPES:
            rungs = {row["rung"] for row in found["rows"] if (row["kind"], row["direction"]) == (kind, direction)}
            assert {"default", "cudnn NCHW"} < rungs
            assert kind != "float32" or {"plain", "register", "vector"} <= rungs
