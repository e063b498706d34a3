"""The command `minigrad`: what it prints, keeps, refuses, and how it is interrupted."""

import csv
import gzip
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread, imsave

from minigrad import checkpoint, models
from minigrad.cli import main
from minigrad.cli.interruption import Interruption
from minigrad.cli.picture import prepared
from minigrad.data import DataError, digits
from minigrad_kernels import toolchain

QUICK = ["--data", "digits", "--model", "mlp", "--epochs", "2", "--batch-size", "64", "--no-new-writers"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs go to a folder of the test; no MNIST of this machine is found."""
    from minigrad.data import sources

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINIGRAD_DATA", raising=False)
    bases = sources._bases
    monkeypatch.setattr(sources, "_bases", lambda folder: [*bases(folder)[:-1], (tmp_path / "cache", False)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of two epochs."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(["train", *QUICK, "--out", str(folder)]) == 0
    return folder


def idx(array):
    kind = {"uint8": 8}[array.dtype.name]
    head = struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


@pytest.fixture
def small_mnist(tmp_path):
    """A folder with few records in MNIST's files."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, whole in zip(("train", "t10k"), digits(size=28), strict=True):
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(idx(whole.images[:100, 0].copy()))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(idx(whole.labels[:100].astype(np.uint8)))
    return folder


def lines_of(capsys):
    return capsys.readouterr().out.splitlines()


def weights_of(folder, name="last"):
    index = json.loads((Path(folder) / name / "checkpoint.json").read_text())
    return (Path(folder) / name / index["tensors"]).read_bytes()


# ---- train ---------------------------------------------------------------------------------------------


def test_run_folder_and_last_line(tmp_path, capsys):
    assert main(["train", *QUICK, "--out", "run", "--seed", "3"]) == 0
    lines = lines_of(capsys)
    run = tmp_path / "run"
    wanted = {"config.json", "history.jsonl", "history.csv", "last", "best", "learning-curve.png", "result.json"}
    assert {path.name for path in run.iterdir()} == wanted
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [float(row["loss"]) for row in csv.DictReader((run / "history.csv").read_text().splitlines())] == [
        r["loss"] for r in rows
    ]
    accuracy = f"{100 * rows[-1]['test_accuracy']:.2f} %"
    assert lines[-1] == f"test accuracy {accuracy}"
    assert re.fullmatch(
        rf"epoch 2/2  loss {rows[1]['loss']:.4f}  train [\d.]+ %  test {accuracy}  \d+ images/s", lines[-2]
    )
    assert any(re.fullmatch(r"(compiling|loading) kernels \.\.\. \d+\.\d s( \(\d+ compiled\))?", x) for x in lines)
    config = json.loads((run / "config.json").read_text())
    assert config["command"] == ["minigrad", "train", *QUICK, "--out", "run", "--seed", "3"]
    assert config["versions"].keys() >= {"minigrad", "python", "numpy", "numba"}
    assert config["settings"]["seed"] == 3 and config["settings"]["lr"] == 3e-3
    assert json.loads((run / "result.json").read_text())["test_accuracy"] == rows[-1]["test_accuracy"]
    assert imread(run / "learning-curve.png").ndim == 3
    extra = checkpoint.load(run / "best")["history"]["rows"]
    assert extra[-1]["test_accuracy"] == max(row["test_accuracy"] for row in rows)


def test_new_writers_are_measured_before_the_last_line(tmp_path, capsys):
    arguments = [word for word in QUICK if word != "--no-new-writers"]
    assert main(["train", *arguments, "--out", "run"]) == 0
    *_, harder, last = lines_of(capsys)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert harder == f"test accuracy on new writers {100 * result['new_writers']['test_accuracy']:.2f} %"
    assert last == f"test accuracy {100 * result['test_accuracy']:.2f} %"


def test_same_seed_same_bits_whatever_the_threads(tmp_path):
    many = str(min(2, os.cpu_count()))
    for out, options in {"a": ["--threads", "1"], "b": ["--threads", many], "c": ["--seed", "1"]}.items():
        assert main(["train", *QUICK, "--epochs", "1", "--out", out, *options]) == 0
    assert weights_of("a") == weights_of("b") != weights_of("c")


def test_threads_are_as_before_afterwards(finished):
    before = toolchain.threads()
    assert main(["train", *QUICK, "--out", "run", "--threads", "1", "--epochs", "1"]) == 0
    assert toolchain.threads() == before


@pytest.mark.parametrize(
    "options",
    [
        ["--optimizer", "sgd", "--lr", "0.05", "--schedule", "onecycle", "--weight-decay", "1e-4"],
        ["--optimizer", "rmsprop", "--lr", "1e-3", "--schedule", "step", "--clip", "1"],
        ["--optimizer", "adamw", "--schedule", "none", "--augment", "--accumulate", "3"],
    ],
)
def test_options_reach_the_training(tmp_path, options):
    assert main(["train", *QUICK, "--out", "run", *options]) == 0
    settings = json.loads((tmp_path / "run/config.json").read_text())["settings"]
    for name, value in zip(options[::2], options[1::2], strict=False):
        name = name.removeprefix("--").replace("-", "_")
        if name in settings and not value.startswith("--"):
            assert str(settings[name]) == value or settings[name] == float(value)
    rows = [json.loads(line) for line in (tmp_path / "run/history.jsonl").read_text().splitlines()]
    batches = 23  # of 64 among 1,438 images
    assert rows[-1]["step"] == 2 * (8 if "--accumulate" in options else batches)
    assert rows[-1]["loss"] < rows[0]["loss"]


@pytest.mark.parametrize("name", [name for name, a in models.MODELS.items() if a.made_for])
def test_digits_are_enlarged_for_the_networks_of_mnist(tmp_path, capsys, name):
    command = ["train", "--data", "digits", "--model", name, "--batch-size", "719", "--epochs", "1"]
    assert main([*command, "--no-new-writers", "--out", "run"]) == 0
    assert json.loads((tmp_path / "run/config.json").read_text())["images"]["shape"] == [1, 28, 28]


def test_default_folder_names_time_data_and_model(tmp_path):
    for _ in range(2):
        assert main(["train", *QUICK, "--epochs", "1"]) == 0
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(runs) == 2
    assert all(re.fullmatch(r"\d{8}-\d{6}-digits-mlp(-2)?", name) for name in runs)


# ---- data ----------------------------------------------------------------------------------------------


def test_auto_takes_digits_where_mnist_is_not_and_says_so(capsys):
    assert main(["train", "--model", "mlp", "--epochs", "1", "--no-new-writers", "--out", "run"]) == 0
    lines = lines_of(capsys)
    assert lines[0].startswith("data auto: MNIST is not on disk: the digits")
    assert lines[1].startswith("data: digits, 1438 training and 359 test images")


def test_auto_takes_mnist_where_it_is_and_says_so(small_mnist, capsys):
    command = ["train", "--data-dir", str(small_mnist), "--epochs", "1", "--batch-size", "50", "--out", "run"]
    assert main(command) == 0
    out = lines_of(capsys)
    assert out[0] == f"data auto: MNIST was found in {small_mnist}"
    assert "mnist, 100 training and 100 test images" in out[1] and "not the published file" in out[1]
    assert out[2] == "model: keras-cnn, 121,930 parameters"
    assert main(["evaluate", "run"]) == 0
    assert lines_of(capsys)[-1] == out[-1]


def test_mnist_without_a_network_is_one_line(tmp_path, capsys, monkeypatch):
    import pooch

    def offline(*arguments, **options):
        raise OSError("no route to host")

    monkeypatch.setattr(pooch, "retrieve", offline)
    assert main(["train", "--data", "mnist", "--out", "run"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "train-images-idx3-ubyte.gz" in error and "--data digits" in error
    assert not (tmp_path / "run").exists()


def test_auto_never_downloads(monkeypatch):
    import pooch

    monkeypatch.setattr(pooch, "retrieve", lambda *a, **k: pytest.fail("a download was tried"))
    assert main(["train", "--model", "mlp", "--epochs", "1", "--no-new-writers", "--out", "run"]) == 0


# ---- refusals ------------------------------------------------------------------------------------------

REFUSALS = {
    "unknown model": (["--data", "digits", "--model", "vgg"], "unknown model 'vgg', want one of digits-cnn, "),
    "unknown data": (["--data", "svhn"], "invalid choice: 'svhn'"),
    "batch 0": (["--batch-size", "0"], "--batch-size: got 0, want an integer of at least 1"),
    "batch text": (["--batch-size", "many"], "--batch-size: got many, want an integer"),
    "batch too large": (["--data", "digits", "--batch-size", "2000"], "batch_size is 2000"),
    "epochs 0": (["--epochs", "0"], "--epochs: got 0, want an integer"),
    "rate 0": (["--lr", "0"], "--lr: got 0, want a number above 0"),
    "rate nan": (["--lr", "nan"], "--lr: got nan, want a number above 0"),
    "rate below 0": (["--lr=-1"], "--lr: got -1, want a number above 0"),
    "clip 0": (["--clip", "0"], "--clip: got 0"),
    "decay": (["--weight-decay=-1"], "--weight-decay: got -1"),
    "seed": (["--seed=-1"], "--seed: got -1"),
    "accumulate 0": (["--accumulate", "0"], "--accumulate: got 0"),
    "data dir": (["--data-dir", "nowhere"], "--data-dir nowhere is not a folder"),
    "device": (["--data", "digits", "--device", "cuda"], "the devices of this machine are: 'cpu'"),
    "device text": (["--data", "digits", "--device", "toaster"], "toaster"),
    "threads": (["--data", "digits", "--threads", "100000"], "Numba allows 1 to"),
    "out a file": (["--data", "digits", "--out", "file/run"], "is not a folder that can be written"),
    "writers": (["--data", "cifar10", "--new-writers"], "wants --data digits"),
    "resume nothing": (["--resume", "nowhere"], "nowhere holds no checkpoint"),
    "unknown option": (["--learning-rate", "1"], "unrecognized arguments"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_options_are_refused_in_one_line_before_any_work(tmp_path, capsys, case):
    options, message = REFUSALS[case]
    (tmp_path / "file").write_text("")
    out = [] if "--out" in options or "--resume" in options else ["--out", "run"]
    assert main(["train", *options, *out]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1 and message in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_with_a_run_is_not_overwritten(finished, capsys):
    before = weights_of(finished)
    assert main(["train", *QUICK, "--out", str(finished)]) == 2
    assert f"holds a run already; go on with it by --resume {finished}" in capsys.readouterr().err
    assert weights_of(finished) == before


@pytest.mark.parametrize("options", [["--epochs", "3"], ["--data", "digits"], ["--out", "x"], ["--no-augment"]])
def test_resume_takes_no_options_of_training(finished, capsys, options):
    assert main(["train", "--resume", str(finished), *options]) == 2
    assert f"leave out {options[0].replace('no-', '')}" in capsys.readouterr().err


def test_damaged_runs_are_refused(tmp_path, finished, capsys):
    import shutil

    shutil.copytree(finished, tmp_path / "run")
    tensors = next((tmp_path / "run/last").glob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-1])
    for command in (["train", "--resume", "run"], ["evaluate", "run"]):
        assert main(command) == 2
        assert "is damaged" in capsys.readouterr().err
    for config in ('{"settings": {}}', "no", '{"x": 1}'):
        (tmp_path / "run/config.json").write_text(config)
        assert main(["evaluate", "run"]) == 2
        assert "config.json cannot be used" in capsys.readouterr().err


def test_no_command_and_help(capsys):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "predict" in capsys.readouterr().out


# ---- interruption and resume ---------------------------------------------------------------------------


def interrupted_after(monkeypatch, steps):
    """Press Ctrl-C during a given step."""
    from minigrad.optim import Adam

    step, count = Adam.step, []

    def counted(self):
        count.append(1)
        if len(count) == steps:
            signal.raise_signal(signal.SIGINT)
        step(self)

    monkeypatch.setattr(Adam, "step", counted)


@pytest.mark.parametrize("steps", [1, 22, 23, 24, 40])
def test_interrupted_and_resumed_equals_uninterrupted(finished, tmp_path, monkeypatch, capsys, steps):
    """23 steps are an epoch, so this is within the first, at its end, and in the second."""
    with monkeypatch.context() as patch:
        interrupted_after(patch, steps)
        assert main(["train", *QUICK, "--out", "run"]) == 130
    printed = capsys.readouterr()
    assert f"interrupted at step {steps}; go on with: minigrad train --resume run" in printed.out
    assert not (tmp_path / "run/result.json").exists()
    assert main(["train", "--resume", "run"]) == 0
    assert f"run: run, from step {steps} on" in capsys.readouterr().out
    assert weights_of("run") == weights_of(finished)
    assert weights_of("run", "best") == weights_of(finished, "best")
    histories = [
        [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "run", finished)
    ]
    for row in (*histories[0], *histories[1]):
        del row["images_per_second"]
    assert histories[0] == histories[1]


def test_dropout_and_augmentation_continue_bit_for_bit(tmp_path, monkeypatch):
    command = ["train", "--data", "digits", "--model", "mnist-net", "--batch-size", "359", "--epochs", "2"]
    command += ["--augment", "--no-new-writers", "--threads", "1", "--accumulate", "3"]
    assert main([*command, "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        interrupted_after(patch, 3)
        assert main([*command, "--out", "run"]) == 130
    assert main(["train", "--resume", "run"]) == 0
    assert weights_of("run") == weights_of("whole")


def test_a_finished_run_can_be_resumed(finished, capsys):
    before = weights_of(finished)
    assert main(["train", "--resume", str(finished)]) == 0
    lines = lines_of(capsys)
    assert lines[-1].startswith("test accuracy ") and not any(line.startswith("epoch") for line in lines)
    assert weights_of(finished) == before


def test_interruption_during_the_second_training(tmp_path, monkeypatch, capsys):
    arguments = [word for word in QUICK if word != "--no-new-writers"]
    with monkeypatch.context() as patch:
        interrupted_after(patch, 50)
        assert main(["train", *arguments, "--out", "run"]) == 130
    assert not (tmp_path / "run/result.json").exists()
    assert main(["train", "--resume", "run"]) == 0
    assert "new_writers" in json.loads((tmp_path / "run/result.json").read_text())


def test_second_signal_quits_and_handlers_come_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interruption() as interruption, pytest.raises(KeyboardInterrupt):
        assert not interruption.stop(None)
        signal.raise_signal(signal.SIGTERM)
        assert interruption.stop(None)
        signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_outside_the_main_thread_signals_are_left_alone():
    results = []
    thread = threading.Thread(target=lambda: results.append(main(["train", *QUICK, "--out", "run"])))
    thread.start()
    thread.join()
    assert results == [0]


def environment():
    paths = os.pathsep.join(path for path in sys.path if path)
    return os.environ | {"PYTHONPATH": paths, "MINIGRAD_DATA": "", "PYTHONUNBUFFERED": "1"}


@pytest.mark.skipif(os.name != "posix", reason="signals to other processes are POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_with_a_checkpoint(tmp_path, number):
    command = [sys.executable, "-W", "error", "-m", "minigrad", "train", *QUICK, "--epochs", "100000"]
    with subprocess.Popen(
        [*command, "--out", "run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        for line in process.stdout:
            if line.startswith("epoch      2/"):
                process.send_signal(number)
                break
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopping after this step" in err and "Traceback" not in err
    step = int(re.search(r"interrupted at step (\d+); go on with: minigrad train --resume run", out)[1])
    assert checkpoint.load(tmp_path / "run/last")["history"]["steps"] == step >= 46


def test_a_loss_that_is_not_finite_ends_with_an_error(tmp_path, capsys):
    assert main(["train", *QUICK, "--optimizer", "sgd", "--lr", "1e30", "--out", "run"]) == 1
    error = capsys.readouterr().err
    assert re.search(r"error: fit: the loss is (nan|inf) at step \d+; lower the learning rate", error)


# ---- evaluate, predict, info ---------------------------------------------------------------------------


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
    image = test.images[0, 0][:, :, None] / 255
    pixels, notes = prepared(image, "digits", (1, 8, 8))
    np.testing.assert_array_equal(pixels, test.images[:1])
    assert notes == []


def test_prepared_shrinks_by_means_and_keeps_the_mean():
    random = np.random.default_rng(0)
    image = np.repeat(random.random((64, 64, 1)), 3, axis=2)
    pixels, notes = prepared(image, "cifar10", (3, 32, 32))
    assert pixels.shape == (1, 3, 32, 32) and notes == ["resized from 64 x 64 to 32 x 32"]
    assert abs(pixels.mean() / 255 - image.mean()) < 0.01 and pixels.std() / 255 < image.std()
    pixels, notes = prepared(image[..., :1], "cifar10", (3, 64, 64))
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


def test_data_error_is_a_refusal(small_mnist, capsys):
    (small_mnist / "t10k-labels-idx1-ubyte.gz").write_bytes(b"x")
    assert main(["train", "--data", "mnist", "--data-dir", str(small_mnist), "--out", "run"]) == 2
    assert "t10k-labels" in capsys.readouterr().err
    assert issubclass(DataError, ValueError)
