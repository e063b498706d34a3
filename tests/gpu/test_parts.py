"""What the parts that need a GPU do, as far as it can be seen without one: on the stand-in for CuPy, small."""

import importlib
import json
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from minigrad import data, models, nn
from minigrad.parallel.local import LocalTransport, run_local
from minigrad_kernels.interpreter import recording
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.device.stand_in_gpus import gpus
from tests.standin.nccl import state

from . import correctness, main, small

pytestmark = pytest.mark.deep
FILES = {part: main.FILES.get(part, part) for part in main.PARTS}


def network(name, shape, classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 16), nn.ReLU(), nn.Linear(16, classes))


@pytest.fixture
def part(monkeypatch):
    """Imports the file of a part anew, on one GPU of the stand-in, and gives other values to some of its names: those
    that a function of the file gives. All networks are small."""

    def get(name, values=lambda file: {}):
        file = importlib.import_module(f"tests.gpu.{FILES.get(name, name)}")
        for key, value in values(file).items():
            monkeypatch.setattr(file, key, value)
        return file

    monkeypatch.setattr(models, "build", network)
    with gpus(1, forget=[f"tests.gpu.{name}" for name in ("timing", *FILES, *FILES.values())]):
        yield get


# ---- what each part finds --------------------------------------------------------------------------------------------


def once(calls, **_):
    """In place of medians: every call once."""
    for call in calls.values():
        call()
    return dict.fromkeys(calls, (1.0, 0.1))


def one_step(steps, *_):
    """In place of in_turns."""
    return {name: step(0) is None or 0.5 for name, step in steps.items()}


def alone(**values):
    """Without PyTorch: the stand-in has no cuBLAS that both could share."""
    return {"set_torch": lambda kind: None, "medians": once} | values


def without_cudnn(ladders):
    """The plain rung in float64 in place of cuDNN."""

    def plain(direction, arrays, stride, padding):
        geometry = ((stride,) * 2, (padding,) * 2, (1, 1), 1)
        result, ours = ladders._ours(direction, *(array.astype(np.float64) for array in arrays), geometry)
        ours["plain"]()
        return {"cudnn NCHW": lambda: None}, result.copy()

    return alone(LAYERS=[("small", 1, 8, 4, 8, 3, 1, 1)], _cudnn=plain)


def beside_the_cpu(networks):
    """The engine on the stand-in, op by op and as a graph, beside PyTorch on the CPU; one contender fails."""

    def on_the_cpu(*case):
        networks.DEVICE = "cpu"
        try:
            return theirs(*case)
        finally:
            networks.DEVICE = "cuda"

    made, theirs = networks.CONTENDERS, networks.CONTENDERS["torch NCHW"]
    sides = {name: made[name] for name in ("minigrad", "minigrad, graph")}
    sides |= {"torch NCHW": on_the_cpu, "torch graph NCHW": lambda *case: 1 / 0}
    few = dict(NETWORKS=("lenet",), SIZES=(2,), INFERENCE=(3,), PRECISIONS=("bfloat16",), DATA=2)
    return few | {"in_turns": one_step, "CONTENDERS": sides}


def race_on_the_cpu(race):
    """Both sides learn what the race asks for, and take the recipe of the other."""
    digits = [images.subset(slice(320)) for images in data.digits(size=28)]
    source = SimpleNamespace(PadCrop=data.PadCrop, Loader=data.Loader, mnist=lambda folder, download: digits)
    few = dict(TARGETS={320: 0.2, 9999: 0.5}, SEEDS=1, EPOCHS=4, BATCH=32, DEVICE="cpu")
    sides = {name: race.CONTENDERS[name] for name in ("minigrad", "torch")}
    return few | {"data": source, "available": lambda name: ".", "CONTENDERS": sides}


PARTS = {  # values by a function of the file
    "kernels": lambda _: dict(ROWS=64, medians=once),
    "profiles": lambda _: dict(NETWORK="lenet", BATCH=3, WARMING=1, STEPS=2),
    "graphs": lambda _: dict(NETWORKS=("lenet",), BATCH=2, STEPS=4, in_turns=one_step),
    "ranks": lambda ranks: dict(ELEMENTS=64, BATCH=4, STEPS=1, ROWS=[row for row in ranks.ROWS if row.size == 7]),
    "products": lambda _: alone(
        SIZES=(16,), SHAPES=[], _cublas=lambda *_: lambda: None, runs_on=lambda _, r: r != "tma"
    ),
    "convolutions": without_cudnn,
    "networks": beside_the_cpu,
    "race": race_on_the_cpu,
}
RUNGS = {
    "products": {"cublas", "plain", "tiled", "register_64x64", "register", "buffered", "tensor", "async"},
    "convolutions": {"cudnn NCHW", "plain", "tiled", "register", "vector", "tensor"},
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_runs_and_finds_nothing_wrong(name, part):
    if name in ("networks", "race"):
        pytest.importorskip("torch")
    found, state().version = {}, 22903  # of NCCL, which does not take several ranks on a GPU
    getattr(part(name, PARTS[name]), name)(found)
    assert not found.get("failed") and json.dumps(found), found
    if rungs := RUNGS.get(name):
        for kind in ("float32", "tf32", "float16", "bfloat16"):
            assert {"default"} <= {row["rung"] for row in found["rows"] if row["kind"] == kind}
        assert rungs <= {row["rung"] for row in found["rows"]}
    if name == "networks":
        for row in found["rows"]:
            assert row["ratios"].keys() == {"minigrad / torch", "minigrad, graph / torch"}
            assert row["absent"] == {"torch graph NCHW": "ZeroDivisionError: division by zero"}


def test_a_wrong_product_is_told(part):
    ladders, found = part("products", PARTS["products"]), {}
    part("products", lambda _: {"KINDS": [ladders.KINDS[0]._replace(digits=60)]}).products(found)
    assert found["failed"] and found["wrong"][0].startswith("float32 16 16 16 NN default: off by ")


def test_training(part):
    """A short run in place of the job, on the CPU: the command of the package starts a process of its own."""
    row = {"job": "digits", "command": "minigrad train --data digits --model mlp", "test_images": 359}
    found = part("training").job(row | {"test_accuracy": 101.0}, "cpu", ("--epochs", "1"))
    assert found["same_bits_twice"] and found["failed"], "one epoch is too few"


def test_several_ranks_on_a_gpu(part, monkeypatch, capsys):
    """Threads in place of processes."""
    ranks = part("ranks", PARTS["ranks"])
    as_threads = lambda size: (run_local(ranks.as_rank, size), capsys.readouterr().out)[1]
    monkeypatch.setattr(LocalTransport, "backend", "nccl")
    monkeypatch.setattr(ranks, "processes", as_threads)
    for name, value in ranks.SETTINGS.items():
        monkeypatch.setenv(name, value)
    assert ranks.several() == {f"{size} ranks": [len(ranks.ROWS[:: ranks.FEWER])] * size for size in ranks.RANKS}


def test_the_sanitizer_sees_every_kernel(capsys):
    with recording() as launches:
        small.main("interpreter")
    assert {kernel.name for kernel in all_kernels()} == {name for name, _ in launches}
    assert not any(report.faults for _, report in launches)
    assert capsys.readouterr().out.strip() == small.LAST.replace("cuda", "interpreter")
    assert small.outcome([sys.executable, "-c", f"print({small.LAST!r})"]) == "clean"
    command = f"print({small.LAST!r}), print('3 errors'), exit(99)"
    assert small.outcome([sys.executable, "-c", command]) == "exit code 99: 3 errors"


def test_the_tables_run_on_a_device(tmp_path, monkeypatch):
    names, found = {path.name for path in correctness.files()}, {}
    assert {"test_kernels_cuda.py", "test_optimizer.py", "test_rungs.py"} < names and len(names) > 6
    assert all(path.exists() for path in correctness.OPS)
    monkeypatch.setattr(correctness, "WORKERS", 1)
    (tmp_path / "test_it.py").write_text("def test_right(): pass\ndef test_wrong(): assert 0\n")
    correctness.run_tests(found, [tmp_path])
    assert found.pop("failed_tests")[0].endswith("test_it.py::test_wrong")
    assert found == {"passed": 1, "skipped": 0, "failed": True}


# ---- parts and their file --------------------------------------------------------------------------------------------

ENDINGS = {  # what a part does: why it failed
    "found['rows'] = [1]": None,
    "found['rows'] = [1]; raise RuntimeError('no such luck')": "RuntimeError: no such luck",
    "found['rows'] = [1]; import time; time.sleep(60)": "not finished in 2 s",
    "import os; os._exit(3)": "ended without a word",
}


@pytest.mark.skipif(os.name != "posix", reason="processes are ended as a group")
@pytest.mark.parametrize("body", ENDINGS)
def test_a_part_that_fails_leaves_what_it_found_and_all_other_sections(body, tmp_path):
    """A part of this name is put in the place of the real one."""
    code = f"import sys, types; part = types.ModuleType('tests.gpu.race')\ndef race(found): {body}\npart.race = race\n"
    code += "sys.modules['tests.gpu.race'] = part; from tests.gpu import main; sys.exit(main.main())"
    file, here, why = tmp_path / "some-gpu-80gb.json", {"gpu": "Some GPU, 80GB"}, ENDINGS[body]
    file.write_text(json.dumps({"parts": {"kernels": {"seconds": 1}}}))
    assert main.run_part("race", tmp_path, 2, here, ["-c", code]) is (why is None)
    parts = json.loads(file.read_text())["parts"]
    section = parts["race"]
    assert parts["kernels"] == {"seconds": 1} and section["machine"] == here and section.get("why") == why
    assert section.get("rows") == (None if why == "ended without a word" else [1])


def test_the_machine_and_what_is_missing(part, tmp_path, monkeypatch, capsys):
    found = main.machine()
    assert (found["gpu"], found["driver"], found["multiprocessors"]) == ("stand-in", 13000, 132) and json.dumps(found)
    assert all(f"\n{name} " in main.__doc__ for name in main.PARTS)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(sys, "argv", ["run_all", "kernels", "--out", str(tmp_path / "out")])
    assert main.main() == 2 and not (tmp_path / "out").exists()
    assert "needs CuPy and an NVIDIA GPU: import of cupy halted" in capsys.readouterr().err
