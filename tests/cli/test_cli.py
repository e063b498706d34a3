"""minigrad train: what it prints and keeps, where its data come from; damaged runs; the help of all commands.

What the options refuse is in tests/refusals/command.py.
"""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import json
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from minigrad.cli import main
from minigrad.cli.arguments import COMMANDS, TRAIN, parser
from minigrad.cli.settings import options
from minigrad_kernels import toolchain
from tests.cli.cli_runs import QUICK, elsewhere, finished, lines_of, read, weights_of  # noqa: F401
from tests.data.test_sources import mnist_files, write
from tests.train.checkpoint_parts import state_of


def rows_of(run):
    return [json.loads(line) for line in Path(run, "history.jsonl").read_text().splitlines()]


def test_run_folder_and_last_line(capsys):
    run = Path("run")
    assert main(["train", *QUICK, "--out", "run", "--seed", "3"]) == 0
    lines, rows = lines_of(capsys), rows_of(run)
    assert {path.name for path in run.iterdir()} == {"config.json", "history.jsonl", "last", "best", "result.json"}
    config, result, accuracy = read("run/config.json"), read("run/result.json"), rows[-1]["test_accuracy"]
    said = rf"epoch 2/2  loss {rows[1]['loss']:.4f}  train [\d.]+ %  test {100 * accuracy:.2f} %  \d+ images/s"
    assert re.fullmatch(said, lines[-3])
    assert lines[-2:] == [f"weights hash {result['weights']}", f"test accuracy {100 * accuracy:.2f} %"]
    assert config["run"]["command"] == f"minigrad train {' '.join(QUICK)} --out run --seed 3"
    assert config["versions"].keys() >= {"minigrad", "python", "numpy", "numba"}
    assert config["settings"]["seed"] == 3 and config["settings"]["lr"] == 3e-3
    best = state_of(run / "best")["history"]["rows"]
    assert best[-1]["test_accuracy"] == max(row["test_accuracy"] for row in rows) == result["test_accuracy"]


def test_same_seed_same_bits_whatever_the_threads():
    before, many = toolchain.threads(), str(min(2, os.cpu_count()))
    for out, more in {"a": ["--threads", "1"], "b": ["--threads", many], "c": ["--seed", "1"]}.items():
        assert main(["train", *QUICK, "--epochs", "1", "--out", out, *more]) == 0
    assert weights_of("a") == weights_of("b") != weights_of("c")
    assert toolchain.threads() == before


REACHED = {  # options: (settings that are not those given, updates of two epochs)
    "--optimizer sgd --lr 0.05 --schedule onecycle --weight-decay 1e-4": ({}, 46),
    "--optimizer sgd --schedule step --clip 1 --split writers": ({"lr": 0.03}, 30),
    "--optimizer adamw --schedule none --augment --accumulate 3": ({"lr": 3e-3, "augment": True}, 16),
    "--optimizer adagrad --limit 64 --model lenet": ({"lr": 0.01, "shape": [1, 28, 28]}, 2),
    "--precision float16": ({}, 46),
}


@pytest.mark.parametrize("words", REACHED)
def test_options_reach_the_training(words):
    wanted, updates = REACHED[words]
    assert main(["train", *QUICK, "--out", "run", *words.split()]) == 0
    settings, rows = read("run/config.json")["settings"], rows_of("run")
    given = {name.replace("-", "_"): text for name, text in re.findall(r"--(\S+) ([^-\s]\S*)", words)}
    assert all(str(settings[name]) == text or settings[name] == float(text) for name, text in given.items())
    assert {name: settings[name] for name in wanted} == wanted
    assert rows[-1]["step"] == updates and rows[-1]["loss"] < rows[0]["loss"]
    assert rows[-1].get("loss_scale") == (65536.0 if "float16" in words else None)


def test_digits_are_taken_where_mnist_is_not_and_mnist_where_it_is(monkeypatch, tmp_path, capsys):
    """Nothing is downloaded; from files with few records."""
    monkeypatch.setattr("pooch.retrieve", lambda *a, **k: pytest.fail("a download was tried"))
    assert main(["train", "--model", "mlp", "--epochs", "1", "--no-report"]) == 0
    lines, (run,) = lines_of(capsys), Path("runs").iterdir()
    assert lines[0] == "MNIST is not on disk (--data mnist downloads it); training on digits"
    assert lines[1].startswith("data: digits, 1438 training and 359 test images")
    assert re.fullmatch(r"\d{8}-\d{6}-digits-mlp", run.name)
    write(tmp_path, mnist_files())
    assert main(f"train --data-dir {tmp_path} --epochs 1 --batch-size 5 --no-report --out run".split()) == 0
    out = lines_of(capsys)
    assert out[0] == f"MNIST was found in {tmp_path}; training on mnist"
    assert "mnist, 5 training and 3 test images" in out[1] and "not the published file" in out[1]
    assert main(["evaluate", "run"]) == 0 and lines_of(capsys)[-1] == out[-1]


def test_damaged_runs_are_refused(finished, capsys):
    shutil.copytree(finished, "run")
    for tensors in Path("run/last").glob("*.safetensors"):  # the newest and the one before
        tensors.write_bytes(tensors.read_bytes()[:-1])
    for command in (["train", "--resume", "run"], ["evaluate", "run"]):
        assert main(command) == 2
        assert "cannot load run/last/checkpoint-" in capsys.readouterr().err
    settings = read("run/config.json")["settings"]
    for damage, message in {
        "no": "config.json cannot be used",
        json.dumps({"settings": {}}): "config.json cannot be used",
        json.dumps({"settings": settings | {"speed": 1}}): "unexpected keyword argument 'speed'",
    }.items():
        Path("run/config.json").write_text(damage)
        assert main(["evaluate", "run"]) == 2
        assert message in capsys.readouterr().err


HELP = {  # command: a part of its help that is true of it alone, or of a trained network
    "evaluate": "--device DEVICE default that of the run",
    "predict": "--device DEVICE default that of the run",
    "export": "--device DEVICE default that of the run",
    "report": "--device DEVICE default that of the run",
    "info": "--device DEVICE the device that --check looks at; default cuda",
    "kernels": "NAME how the names of kernels begin",
    "math": "NAME the name of an op",
    "profile": "default runs/DATE-TIME-profile-MODEL",
    "launch": "143 after SIGTERM",
}


def test_help_is_one_screen_with_an_example_a_command(capsys, monkeypatch):
    """Each example is one that the parser takes; a shell may ask for completions."""
    assert main([]) == 2 and main(["--help"]) == 0
    printed = capsys.readouterr()
    assert printed.out == printed.err
    lines = printed.out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    examples = [line[:43].split() for line in lines if line.startswith("  minigrad ")]
    assert {words[1] for words in examples} == COMMANDS.keys()
    for _, *words in examples:
        assert parser().parse_args(words).command == words[0]
    assert main(["train", "--help"]) == 0 and {*options()} <= {*TRAIN.split()}
    text = " ".join(capsys.readouterr().out.split())
    places = [text.index(word) for word in ("minigrad train --data mnist", "--epochs N", "advanced options", "--clip")]
    assert places == sorted(places)
    assert "passes over the training images; default 30, 10 (mnist)" in text
    assert "default 0.003, 0.001 (rmsprop), 0.01 (adagrad), 0.03 (sgd), 0.1 (resnet)" in text
    assert "depends on it; default the number of ranks --zero" in text
    for command, said in HELP.items():
        assert main([command, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert said in text and ("--precision" in text) == (command in ("evaluate", "predict"))
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setitem(sys.modules, "argcomplete", SimpleNamespace(autocomplete=lambda top: print(top.prog)))
    assert main(["--version"]) == 0
    assert re.fullmatch(r"minigrad\nminigrad \d+\.\d+\.\S+\n", capsys.readouterr().out)
