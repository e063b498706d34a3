"""The examples run, on few images."""

import importlib.util
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import data, models, nn, parallel
from minigrad.cli import main as minigrad_command
from tests.device.stand_in_gpus import gpus

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def few_digits(monkeypatch, tmp_path):
    """Digits of which there are few, and no MNIST; files go to a folder of the test."""
    whole = data.digits
    few = lambda *sizes, **options: tuple(part.subset(range(256)) for part in whole(*sizes, **options))
    monkeypatch.setattr(data, "available", lambda name, folder=None: None)
    monkeypatch.setattr(data, "digits", few)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def script(monkeypatch, capsys):
    """Runs an example as a user does: script(name, *words); returns the lines that it prints."""

    def run(name, *words):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def example(name):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_mnist_in_40_lines(script):
    assert len((EXAMPLES / "mnist.py").read_text().splitlines()) <= 40
    head, *lines = script("mnist", "3")
    losses = [float(line.split()[3].strip(",")) for line in lines]
    assert head.endswith("256 images, 121,930 parameters") and len(losses) == 3 and losses[2] < losses[0]


def test_mnist_networks(script):
    rows = script("mnist_networks", "--epochs", "1", "--batch-size", "64")[-3:]
    assert [row.split()[0] for row in rows] == ["keras-cnn", "lenet", "mnist-net"]


def coloured(data_dir, download):
    """Squares of three colours, as CIFAR-10 would come."""
    random, labels = np.random.default_rng(0), np.arange(96) % 3
    images = random.integers(0, 80, (96, 3, 32, 32), dtype=np.uint8)
    images[np.arange(96), labels, 8:24, 8:24] += 150
    whole = data.Dataset(images, labels, ("red", "green", "blue"))
    return whole.subset(range(64)), whole.subset(range(64, 96))


def test_train_cifar10_resnet(monkeypatch, script):
    monkeypatch.setattr(data, "cifar10", coloured)
    blocks = models.BasicBlock(3, 8, 2), models.BasicBlock(8, 8, 1)
    small = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    module = example("train_cifar10_resnet")
    assert module.main(epochs=6, batch_size=16, model=small)[-1]["test_accuracy"] > 0.5
    decayed, others = module.decayed(small, 5e-4)
    assert decayed["weight_decay"] == 5e-4 and all(p.ndim > 1 for p in decayed["params"])
    assert others["weight_decay"] == 0 and len(others["params"]) == sum(p.ndim == 1 for p in small.parameters()) > 0
    out = "".join(script("train_cifar10_resnet", "--epochs", "1", "--batch-size", "4", "--limit", "8"))
    assert "8 training and 8 test images" in out and "11,173,962" in out and "test accuracy" in out


def test_data_parallel(script, tmp_path):
    """The third run goes on where the second ended, from the last checkpoint in its middle."""
    hashes, saved = [], ["--checkpoints", str(tmp_path)]
    for words in ([], [*saved, "--every", "3", "--epochs", "1"], saved):
        lines = script("data_parallel", "--shards", "4", "--epochs", "2", "--optimizer", "adam", *words)
        assert "4 shards on 1 ranks (local)" in lines[0]
        hashes.append(lines[-1])
    assert hashes[0] == hashes[2] != hashes[1] and hashes[0].startswith("weights hash ")


def test_pipeline(script, capsys):
    """The same weights from one stage and from two, under both schedules; 1f1b keeps fewer microbatches."""
    module, hashes, kept = example("pipeline"), [], []
    for ranks, schedule in ((1, "1f1b"), (2, "1f1b"), (2, "gpipe")):
        run = lambda world: module.main(1, 32, 4, schedule, world)  # noqa: B023
        hashes += parallel.run_local(run, ranks)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("epoch 1: loss") and lines[-1] == f"weights hash {hashes[0]}"
        kept.append([int(line.split()[5]) for line in lines if line.startswith("stage ")])
    assert len(set(hashes)) == 1 and kept == [[1], [2, 1], [4, 4]]
    lines = script("pipeline", "--epochs", "1", "--microbatches", "2")
    assert lines[-2] == "stage 0: 9 layers, kept 1 microbatches at most"


def test_custom_kernel(script):
    agree, same, fit = script("custom_kernel")
    assert agree == "first and second gradient agree with differences"
    assert float(same.rpartition(" ")[2]) < 2e-6
    first, last = (float(word.strip(",")) for word in fit.split() if word.strip(",").startswith("0."))
    assert last < first / 3


def test_export_weights(script, capsys, tmp_path):
    found = example("export_weights").main(out=tmp_path / "out")
    out = capsys.readouterr().out
    assert "0.weight     float32 (6, 1, 5, 5)" in out and "weights.npz: " in out and "weights.safetensors: " in out
    assert (found is None) == (find_spec("torch") is None) and (found or 0) < 1e-5
    assert minigrad_command("train --data digits --model mlp --epochs 1 --no-report --out run".split()) == 0
    script("export_weights", "run", "--out", "exported")
    assert minigrad.load_weights("exported/weights.npz")["1.weight"].shape == (128, 64)


def test_bandwidth(script):
    with gpus(2):
        rates = example("bandwidth").main(1)
    for copy in ("pageable memory to GPU", "GPU to pinned memory", "GPU to itself", "GPU 0 to GPU 1 (direct)"):
        assert rates[f"cuda:0, {copy}"] > 0
    assert len(rates) == 1 + 2 * 6
    assert script("bandwidth", "1")[-1].startswith("host memory, one thread")


@pytest.mark.skipif(find_spec("sklearn") is None, reason="wants scikit-learn (extra oracle)")
def test_estimator(script):
    assert script("estimator")[0].startswith("accuracy 9")


@pytest.mark.deep
def test_tiny_gpt(script):
    """Its layers beside PyTorch's: tests/oracles/test_nn_torch.py."""
    first, step, *_ = script("tiny_gpt", "--steps", "3", "--seed", "1")
    assert first == "13,462 characters, 60 different; entropy 3.01" and step.startswith("step 1: loss 4.")


def test_every_example_is_run_here_and_listed():
    names, elsewhere = {path.stem for path in EXAMPLES.glob("*.py")}, {"scaling"}  # test_example_scaling.py
    assert elsewhere | {name for name in names if f'("{name}"' in Path(__file__).read_text()} == names
    assert all(f"`{name}.py`" in (EXAMPLES / "README.md").read_text() for name in names)
