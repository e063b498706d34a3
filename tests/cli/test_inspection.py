"""minigrad evaluate, predict and info."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.image import imsave
from PIL import Image

from minigrad.cli import main
from minigrad.cli.picture import prepared
from minigrad.data import digits
from tests.cli.cli_runs import QUICK, elsewhere, environment, finished, lines_of  # noqa: F401


def test_evaluate_repeats_the_figure(finished, capsys):
    accuracy = json.loads((finished / "result.json").read_text())["test_accuracy"]
    assert main(["evaluate", str(finished)]) == 0
    assert lines_of(capsys)[-1] == f"test accuracy {100 * accuracy:.2f} %"
    assert main(["evaluate", str(finished), "--checkpoint", "best"]) == 0
    assert main(["evaluate", "nowhere"]) == 2


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A run that is good enough to read digits."""
    folder = tmp_path_factory.mktemp("reader") / "run"
    assert main(["train", *QUICK, "--epochs", "8", "--out", str(folder)]) == 0
    return folder


def picture(kind, image):
    """A drawing of a digit in one of the ways that pictures come in; image (8, 8) of 0..1, light on dark."""
    large = np.kron(image, np.ones((9, 9)))
    canvas = np.pad(large, ((30, 55), (20, 80)))
    colour = np.stack([1 - canvas * 0.9, 1 - canvas * 0.8, 1 - canvas], axis=2)
    ink = np.zeros((*canvas.shape, 4))
    ink[..., 3] = canvas
    return {"taken as it is": image, "inverted": 1 - image, "colour": colour, "transparent": ink}[kind]


@pytest.mark.parametrize(
    "kind, notes",
    [
        ("taken as it is", ["taken as it is"]),
        ("inverted", ["dark on light, so inverted"]),
        ("colour", ["colour made grey", "inverted", "cut to the ink", "resized from"]),
        ("transparent", ["inverted", "cut to the ink", "resized from"]),
    ],
)
def test_predict_reads_pictures_and_says_what_was_done(reader, tmp_path, capsys, kind, notes):
    _, test = digits()
    right = 0
    for number in range(10):
        image = test.images[np.flatnonzero(test.labels == number)[1], 0] / 240
        imsave(tmp_path / "image.png", picture(kind, image), cmap="gray", vmin=0, vmax=1)
        assert main(["predict", str(reader), "image.png"]) == 0
        first, likeliest, *rest = lines_of(capsys)
        assert all(note in first for note in notes if note != "taken as it is")
        assert re.fullmatch(r" +\d +\d+\.\d %", likeliest) and len(rest) == 2
        right += likeliest.split()[0] == str(number)
    assert right >= 8


def test_prepared_keeps_pixels_that_fit():
    _, test = digits()
    pixels, notes = prepared(Image.fromarray(test.images[0, 0]), "digits", (1, 8, 8))
    np.testing.assert_array_equal(pixels, test.images[:1])
    assert notes == []


def test_prepared_puts_the_centre_of_mass_of_mnist_digits_in_the_middle():
    """As the images are that the networks know; the middle of the ink's outline is elsewhere in a 7 or a 9."""
    image = np.zeros((100, 100), np.uint8)
    image[20:30, 20:70] = 255
    image[30:80, 60:70] = 255
    pixels, _ = prepared(Image.fromarray(image), "mnist", (1, 28, 28))
    ink, places = pixels[0, 0] / pixels.sum(), np.arange(28) + 0.5
    assert abs((ink.sum(axis=1) * places).sum() - 14) < 0.5 and abs((ink.sum(axis=0) * places).sum() - 14) < 0.5
    rows, columns = (np.flatnonzero(pixels[0, 0].max(axis=axis) > 128) for axis in (1, 0))
    assert rows[-1] - rows[0] + 1 == 20 and columns[-1] < 28


def test_prepared_shrinks_by_means_and_keeps_the_mean():
    random = np.random.default_rng(0)
    image = Image.fromarray(random.integers(0, 256, (64, 64), np.uint8))
    pixels, notes = prepared(image.convert("RGB"), "cifar10", (3, 32, 32))
    assert pixels.shape == (1, 3, 32, 32) and notes == ["resized from 64 x 64 to 32 x 32"]
    assert abs(pixels.mean() - np.mean(image)) < 2 and pixels.std() < np.std(image)
    pixels, notes = prepared(image, "cifar10", (3, 64, 64))
    assert notes == ["grey made into three equal colours"] and (pixels[:, 0] == pixels[:, 2]).all()


@pytest.mark.parametrize("fault", ["absent", "text", "cut short", "empty"])
def test_pictures_that_cannot_be_read(reader, tmp_path, capsys, fault):
    path = tmp_path / "image.png"
    imsave(path, np.zeros((20, 20)), cmap="gray", vmin=0, vmax=1)
    if fault == "absent":
        path.unlink()
    elif fault == "text":
        path.write_text("not a picture")
    elif fault == "cut short":
        path.write_bytes(path.read_bytes()[:60])
    assert main(["predict", str(reader), str(path)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and error.startswith("minigrad predict: error: ")


def test_info(capsys):
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    for name in ("minigrad", "numpy", "numba", "devices", "threads", "memory pool", "kernel cache"):
        assert re.search(rf"^{name} +\S", text, re.MULTILINE)


def test_python_dash_m():
    command = [sys.executable, "-W", "error", "-m", "minigrad", "info"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0 and "numba" in done.stdout and done.stderr == ""
