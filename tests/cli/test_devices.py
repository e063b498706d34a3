"""The command on other devices: the interpreter, and the GPU of the stand-in for CuPy."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import contextlib
import json
import re
from pathlib import Path

import pytest

from minigrad import Tensor
from minigrad.cli import main, selfcheck
from minigrad.data import available
from tests.cli.cli_runs import elsewhere, lines_of  # noqa: F401
from tests.device.stand_in_gpus import gpus

MNIST = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist"
FEW = ["--limit", "24", "--batch-size", "8", "--epochs", "1", "--no-report"]


def trained(folder, *options):
    """The figures of a run of three steps."""
    assert main(["train", *FEW, *options, "--out", folder]) == 0
    return json.loads((Path(folder) / "result.json").read_text())


@contextlib.contextmanager
def machine_of(place):
    with gpus(1) if place == "cuda" else contextlib.nullcontext() as machine:
        yield machine


@pytest.mark.deep
@pytest.mark.parametrize("place", ["interpreter", "cuda"])
@pytest.mark.parametrize("model", ["mlp", "digits-cnn"])
def test_a_run_gives_the_figures_of_the_cpu(place, model, capsys):
    options = ["--data", "digits", "--model", model, "--no-new-writers", "--augment"]
    wanted = trained("here", *options)
    with machine_of(place):
        got = trained("there", *options, "--device", place)
    assert got["test_loss"] == pytest.approx(wanted["test_loss"], rel=1e-4) and got["step"] == wanted["step"] == 3
    capsys.readouterr()
    assert main(["evaluate", "there", "--device", "cpu"]) == 0
    shown = float(re.search(r"test loss ([\d.]+)", "\n".join(lines_of(capsys)))[1])
    assert shown == pytest.approx(got["test_loss"], abs=2e-4)


def test_a_device_is_checked_against_the_cpu(capsys, monkeypatch):
    assert main(["info", "--check"]) == 1  # without a GPU, and it says why
    assert "device is 'cuda'" in capsys.readouterr().err
    with gpus(1):
        assert main(["info", "--check"]) == 0
        count = len(selfcheck.CHECKS)
        assert f"cuda: {count} of {count} checks passed" in capsys.readouterr().out
        wrong = {
            "wrong": lambda there: [Tensor([1.0 + (there == "cuda")])],
            "broken": lambda there: 1 / (there == "cpu"),
        }
        monkeypatch.setattr(selfcheck, "CHECKS", wrong)
        assert main(["info", "--check"]) == 1
    said = capsys.readouterr().out
    assert "FAILED: off by 1 of the largest number" in said and "FAILED: ZeroDivisionError" in said
    assert "cuda: 0 of 2 checks passed" in said


def test_a_run_moves_to_another_device_when_it_is_resumed():
    options = ["--data", "digits", "--model", "mlp", "--no-new-writers"]
    trained("whole", *options)
    with gpus(1):
        trained("parts", *options, "--device", "cuda")
        config = json.loads(Path("parts/config.json").read_text())
        config["settings"]["epochs"] = 2
        Path("parts/config.json").write_text(json.dumps(config))
    assert main(["train", "--resume", "parts"]) == 2  # cuda is not here any more
    assert main(["train", "--resume", "parts", "--device", "cpu", "--no-report"]) == 0
    assert json.loads(Path("parts/result.json").read_text())["step"] == 6


@pytest.mark.deep
@pytest.mark.skipif(available("mnist", str(MNIST)) is None, reason="MNIST is not beside the repository")
def test_mnist_on_the_interpreter():
    options = ["--data", "mnist", "--data-dir", str(MNIST), "--model", "keras-cnn", "--limit", "8", "--batch-size", "4"]
    wanted, got = trained("here", *options), trained("there", *options, "--device", "interpreter")
    assert got["step"] == 2 and got["test_loss"] == pytest.approx(wanted["test_loss"], rel=1e-4)


def test_info_lists_gpus(capsys):
    with gpus(2):
        assert main(["info"]) == 0
    text = "\n".join(lines_of(capsys))
    assert "cuda:0 (stand-in" in text and "cuda:1 (stand-in" in text


def test_info_says_why_there_is_no_gpu(capsys):
    with gpus(error=35):
        assert main(["info"]) == 0
    assert re.search(r"no GPU \(.*no GPU can be used: .*driver", "\n".join(lines_of(capsys)))
