"""minigrad profile: what it prints and writes."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import json
import re
from pathlib import Path

import pytest
from matplotlib.image import imread

from minigrad.cli import main
from minigrad_kernels import toolchain
from tests.cli.cli_runs import elsewhere, lines_of  # noqa: F401
from tests.device.stand_in_gpus import gpus
from tests.profile.profile_parts import check, nobody_looks

FILES = {"trace.json", "timeline.png", "memory.png", "profile.json"}


def figures(lines):
    """{name: number} of the indented lines."""
    return {name: float(number) for name, number, *_ in (line.split() for line in lines if line.startswith("  "))}


def test_profile_prints_tables_and_writes_pictures(capsys):
    threads = toolchain.threads()
    assert main(["profile", "lenet", "--batch-size", "16", "--steps", "3", "--out", "found"]) == 0
    lines = lines_of(capsys)
    assert lines[0].startswith("data auto: MNIST is not on disk")
    assert lines[1:3] == ["lenet on digits, cpu: steps of 16 images", "3 steps recorded after 2 others"]
    heads = [line.split()[0] for line in lines if " self, ms" in line]
    assert heads == ["op", "layer", "kernel"]
    assert any(re.match(r"conv2d_relu_max_pool2d +6 ", line) for line in lines)
    assert any(re.match(r"0 +Conv2d +conv2d_relu_max_pool2d +3 ", line) for line in lines)
    found = figures(lines)
    assert 0 < found["kernels"] < found["host"] < found["wall"] and found["device"] == 0
    assert {"parameters", "gradients", "optimiser", "activations", "other"} <= found.keys()
    (step,) = [float(line.split()[1]) for line in lines if line.startswith("time: ")]
    assert step == pytest.approx((found["wall"] - found["profiling"]) / 3, rel=1e-3)
    assert (
        lines[-1].startswith("written to found: trace.json")
        and {path.name for path in Path("found").iterdir()} == FILES
    )
    check(Path("found/trace.json"))
    for name in ("timeline.png", "memory.png"):
        assert imread(Path("found") / name).std() > 0.05  # something is drawn
    found = json.loads(Path("found/profile.json").read_text())
    assert found["command"][:3] == ["minigrad", "profile", "lenet"] and found["totals"]["kernels"] > 0
    assert {row["name"]: row["calls"] for row in found["op"]}["Adam.step"] == 3
    assert toolchain.threads() == threads and nobody_looks()


def test_the_folder_is_named_after_the_time_and_the_model(capsys):
    assert main(["profile", "mlp", "--data", "digits", "--steps", "1"]) == 0
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}-profile-mlp", folder.name) and {path.name for path in folder.iterdir()} == FILES


def test_steps_may_be_more_than_an_epoch_has(capsys):
    """1438 images are 3 batches of 512."""
    assert main(["profile", "mlp", "--batch-size", "512", "--steps", "5", "--out", "found"]) == 0
    assert any(re.match(r"linear +5 ", line) for line in lines_of(capsys))


def test_on_a_gpu_host_device_and_their_overlap_are_told_apart(capsys):
    with gpus(1):
        assert main(["profile", "mlp", "--batch-size", "8", "--steps", "2", "--device", "cuda", "--out", "found"]) == 0
    lines = lines_of(capsys)
    found = figures(lines)  # kernels also of the loader, which prepares batches on the GPU
    assert found["kernels"] < found["host"] and 0 < found["overlap"] <= found["device"]
    assert any("device, ms" in line for line in lines)
    names = {event["args"]["name"] for event in check(Path("found/trace.json")) if event["name"] == "thread_name"}
    assert names == {"host", "cuda:0"}


def test_a_folder_with_a_run_is_left_alone(capsys):
    quick = ["--data", "digits", "--model", "mlp", "--epochs", "1", "--no-new-writers"]
    assert main(["train", *quick, "--out", "run"]) == 0
    before = {path.name for path in Path("run").iterdir()}
    assert main(["profile", "mlp", "--out", "run"]) == 2
    assert "run holds a run already" in capsys.readouterr().err and {p.name for p in Path("run").iterdir()} == before
