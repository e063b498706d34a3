"""minigrad evaluate, predict, profile, info and its check of a device; trainings on other devices."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread, imsave
from PIL import Image

from minigrad.cli import main, selfcheck
from minigrad.cli.picture import prepared
from minigrad.data import digits
from tests.cli.cli_runs import QUICK, elsewhere, finished, lines_of, read  # noqa: F401
from tests.device.stand_in_gpus import gpus
from tests.profile.profile_parts import check, nobody_looks


def test_evaluate_repeats_the_figure(finished, capsys):
    assert main(["evaluate", str(finished)]) == 0
    assert lines_of(capsys)[-1] == f"test accuracy {100 * read(finished / 'result.json')['test_accuracy']:.2f} %"
    assert main(["evaluate", str(finished), "--checkpoint", "best"]) == 0


# ---- predict ---------------------------------------------------------------------------------------------------------

LARGE = "dark on light, so inverted; cut to the ink .*; resized from"
NOTES = ["image.png; colour made grey$", "dark on light, so inverted", f"colour made grey; {LARGE}", LARGE]


def test_predict_reads_pictures_and_says_what_was_done(capsys):
    """Drawings of digits in the ways that pictures come in: as they are, inverted, in colour, transparent."""
    assert main(["train", *QUICK, "--epochs", "8", "--out", "run"]) == 0
    (_, test), mistakes = digits(), {}
    for number in range(10):
        image = test.images[np.flatnonzero(test.labels == number)[1], 0] / 240
        canvas = np.pad(np.kron(image, np.ones((9, 9))), ((30, 55), (20, 80)))
        colour = np.stack([1 - canvas * 0.9, 1 - canvas * 0.8, 1 - canvas], axis=2)
        ink = np.concatenate([np.zeros((*canvas.shape, 3)), canvas[..., None]], axis=2)
        lines_of(capsys)
        for notes, drawn in zip(NOTES, (image, 1 - image, colour, ink), strict=True):
            imsave("image.png", drawn, cmap="gray", vmin=0, vmax=1)
            assert main(["predict", "run", "image.png"]) == 0
            first, likeliest, *rest, seen = lines_of(capsys)
            assert re.search(notes, first) and seen.endswith("seen.png") and len(rest) == 2
            assert re.fullmatch(r" +\d +\d+\.\d %", likeliest)
            mistakes[notes] = mistakes.get(notes, 0) + (likeliest.split()[0] != str(number))
    assert max(mistakes.values()) <= 2


def test_prepared_pictures():
    # The centre of mass of MNIST's digits is in the middle; that of the outline is elsewhere in a 7 or a 9.
    image = np.zeros((100, 100), np.uint8)
    image[20:30, 20:70] = image[30:80, 60:70] = 255
    pixels, _ = prepared(Image.fromarray(image), "mnist", (1, 28, 28))
    ink, places = pixels[0, 0] / pixels.sum(), np.arange(28) + 0.5
    assert abs((ink.sum(axis=1) * places).sum() - 14) < 0.5 and abs((ink.sum(axis=0) * places).sum() - 14) < 0.5
    assert np.ptp(np.flatnonzero(pixels[0, 0].max(axis=1) > 128)) + 1 == 20
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8))
    pixels, notes = prepared(image.convert("RGB"), "cifar10", (3, 32, 32))
    assert pixels.shape == (1, 3, 32, 32) and notes == ["resized from 64 x 64 to 32 x 32"]
    assert abs(pixels.mean() - np.mean(image)) < 2 and pixels.std() < np.std(image)
    pixels, notes = prepared(image, "cifar10", (3, 64, 64))
    assert notes == ["grey made into three equal colours"] and (pixels[:, 0] == pixels[:, 2]).all()


# ---- profile ---------------------------------------------------------------------------------------------------------


def figures(lines):
    """{name: number} of the indented lines."""
    return {name: float(number) for name, number, *_ in (line.split() for line in lines if line.startswith("  "))}


def test_profile_prints_tables_and_writes_pictures(capsys):
    assert main(["profile", "lenet", "--batch-size", "16", "--steps", "3", "--threads", "1", "--out", "found"]) == 0
    lines = lines_of(capsys)
    assert lines[1] == "lenet on digits, cpu: 3 steps of 16 images"
    assert [line.split()[0] for line in lines if " self, ms" in line] == ["op", "layer", "kernel"]
    assert any(re.match(r"0 +Conv2d +conv2d_relu_max_pool2d +3 ", line) for line in lines)
    found = figures(lines)
    assert 0 < found["kernels"] < found["wall"] and found["device"] == 0
    assert {"parameters", "gradients", "optimiser", "activations", "other"} <= found.keys()
    (step,) = [float(line.split()[1]) for line in lines if line.startswith("time: ")]
    assert step == pytest.approx((found["wall"] - found["profiling"]) / 3, rel=1e-3)
    check(Path("found/trace.json"))
    assert imread("found/timeline.png").std() > 0.05 and imread("found/memory.png").std() > 0.05  # something is drawn
    assert nobody_looks()


# ---- devices ---------------------------------------------------------------------------------------------------------


def test_info_lists_gpus_or_says_why_there_are_none(capsys):
    with gpus(2):
        assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert "cuda:0 (stand-in" in text and "cuda:1 (stand-in" in text
    for name in ("minigrad", "numpy", "numba", "devices", "threads", "kernel cache"):
        assert re.search(rf"^{name} +\S", text, re.MULTILINE)
    with gpus(error=35):
        assert main(["info"]) == 0
    assert re.search(r"no GPU \(.*no GPU can be used: .*driver", capsys.readouterr().out)


def test_a_check_of_a_device_says_what_is_wrong(capsys, monkeypatch):
    assert main(["info", "--check"]) == 1  # without a GPU, and it says why
    assert "device is 'cuda'" in capsys.readouterr().err
    wrong = lambda x: x * (2 if x.device == "interpreter" else 1)
    broken = lambda x: x / (1 // (x.device == "cpu"))
    checks = {"softmax": selfcheck.CHECKS["softmax"], "wrong": (wrong, (2,)), "broken": (broken, (2,))}
    monkeypatch.setattr(selfcheck, "CHECKS", checks)
    assert main(["info", "--check", "--device", "interpreter"]) == 1
    said = capsys.readouterr().out
    assert "FAILED: off by 1 of the largest number" in said and "FAILED: ZeroDivisionError" in said
    assert "interpreter: 3 of 5 checks passed" in said


@pytest.mark.deep
@pytest.mark.parametrize("place", ["interpreter", "cuda"])
def test_a_run_gives_the_figures_of_the_cpu_and_moves_to_it(place, capsys):
    """With resumed options of the machine alone."""
    few = ["train", "--data", "digits", "--limit", "24", "--batch-size", "8", "--epochs", "1", "--model", "mlp"]
    assert main([*few, "--no-report", "--out", "here"]) == 0
    with gpus(1):
        assert main([*few, "--no-report", "--out", "there", "--device", place]) == 0
    wanted, got = read("here/result.json"), read("there/result.json")
    assert got["test_loss"] == pytest.approx(wanted["test_loss"], rel=1e-4) and got["step"] == wanted["step"] == 3
    config = read("there/config.json")
    config["settings"]["epochs"] = 2
    Path("there/config.json").write_text(json.dumps(config))
    if place == "cuda":
        assert main(["train", "--resume", "there"]) == 2  # it is not here any more
    assert main(["train", "--resume", "there", "--device", "cpu", "--no-report"]) == 0
    assert read("there/result.json")["step"] == 6


@pytest.mark.deep
def test_a_gpu_passes_its_check_and_a_profile_tells_it_from_the_host(capsys):
    with gpus(1):
        assert main(["info", "--check"]) == 0
        assert "cuda: 9 of 9 checks passed" in capsys.readouterr().out
        options = ["--data", "digits", "--batch-size", "512", "--steps", "3", "--out", "found"]
        assert main(["profile", "mlp", *options, "--device", "cuda"]) == 0
    found = figures(lines_of(capsys))
    assert 0 < found["kernels"] < found["wall"] and 0 < found["device"] < found["wall"]
    names = {event["args"]["name"] for event in check(Path("found/trace.json")) if event["name"] == "thread_name"}
    assert names == {"host", "cuda:0"}
