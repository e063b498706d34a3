"""minigrad train: what it prints, keeps and refuses."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import csv
import json
import os
import re
import shutil

import pytest
from matplotlib.image import imread

from minigrad import models
from minigrad.cli import main
from minigrad.cli.arguments import COMMANDS, parser
from minigrad_kernels import toolchain
from tests.cli.cli_runs import QUICK, elsewhere, finished, lines_of, weights_of  # noqa: F401
from tests.train.checkpoint_parts import edit, state_of


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
        rf"epoch 2/2  loss {rows[1]['loss']:.4f}  train [\d.]+ %  test {accuracy}  \d+ images/s", lines[-3]
    )
    assert lines[-2] == f"weights hash {json.loads((run / 'result.json').read_text())['weights']}"
    config = json.loads((run / "config.json").read_text())
    assert config["command"] == ["minigrad", "train", *QUICK, "--out", "run", "--seed", "3"]
    assert config["versions"].keys() >= {"minigrad", "python", "numpy", "numba"}
    assert config["settings"]["seed"] == 3 and config["settings"]["lr"] == 3e-3
    assert json.loads((run / "result.json").read_text())["test_accuracy"] == rows[-1]["test_accuracy"]
    assert imread(run / "learning-curve.png").ndim == 3
    extra = state_of(run / "best")["history"]["rows"]
    assert extra[-1]["test_accuracy"] == max(row["test_accuracy"] for row in rows)


def test_new_writers_are_measured_before_the_last_line(tmp_path, capsys):
    arguments = [word for word in QUICK if word != "--no-new-writers"]
    assert main(["train", *arguments, "--out", "run"]) == 0
    *_, harder, _, last = lines_of(capsys)
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
        ["--optimizer", "adagrad", "--lr", "0.02"],
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


def test_the_rate_follows_the_optimiser(tmp_path):
    for optimizer, rate in {"sgd": 0.03, "adam": 3e-3}.items():
        assert main(["train", *QUICK, "--epochs", "1", "--optimizer", optimizer, "--out", optimizer]) == 0
        settings = json.loads((tmp_path / optimizer / "config.json").read_text())["settings"]
        assert settings["lr"] == rate


@pytest.mark.parametrize("name", [name for name, a in models.MODELS.items() if a.made_for])
def test_digits_are_enlarged_for_the_networks_of_mnist(tmp_path, capsys, name):
    command = ["train", "--data", "digits", "--model", name, "--batch-size", "719", "--epochs", "1"]
    assert main([*command, "--no-new-writers", "--no-report", "--out", "run"]) == 0
    assert json.loads((tmp_path / "run/config.json").read_text())["settings"]["shape"] == [1, 28, 28]


def test_default_folder_names_time_data_and_model(tmp_path):
    assert main(["train", *QUICK, "--epochs", "1"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}-digits-mlp", run.name)


# ---- refusals ------------------------------------------------------------------------------------------


def test_a_folder_with_a_run_is_not_overwritten(finished, capsys):
    before = weights_of(finished)
    assert main(["train", *QUICK, "--out", str(finished)]) == 2
    assert f"holds a run already; go on with it by --resume {finished}" in capsys.readouterr().err
    assert weights_of(finished) == before


def test_the_hint_can_be_pasted_into_a_shell(finished, capsys):
    shutil.copytree(finished, "a run")
    assert main(["train", *QUICK, "--out", "a run"]) == 2
    assert "go on with it by --resume 'a run' or give another --out" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--epochs", "3"], ["--data", "mnist"], ["--out", "x"], ["--eager"]])
def test_resume_takes_no_other_options(finished, capsys, options):
    assert main(["train", "--resume", str(finished), *options]) == 2
    assert f"holds a run with another {options[0]}; leave that out or" in capsys.readouterr().err


def test_damaged_runs_are_refused(tmp_path, finished, capsys):
    shutil.copytree(finished, tmp_path / "run")
    for tensors in (tmp_path / "run/last").glob("*.safetensors"):  # the newest and the one before
        tensors.write_bytes(tensors.read_bytes()[:-1])
    for command in (["train", "--resume", "run"], ["evaluate", "run"]):
        assert main(command) == 2
        assert "is damaged" in capsys.readouterr().err
    for config in ('{"settings": {}}', "no", '{"x": 1}'):
        (tmp_path / "run/config.json").write_text(config)
        assert main(["evaluate", "run"]) == 2
        assert "config.json cannot be used" in capsys.readouterr().err


DAMAGES = [
    ("config.json", ("settings", "data"), "svhn", "unknown data 'svhn', want one of digits"),
    ("config.json", ("settings", "schedule"), "x", "unknown schedule 'x'"),
    ("config.json", ("settings", "epochs"), "2", "epochs is '2', want int"),
    ("config.json", ("settings", "accumulate"), True, "accumulate is True, want int"),
    ("config.json", ("settings", "epochs"), 0, "got 0, want an integer of at least 1"),
    ("config.json", ("settings", "clip"), "x", "clip is 'x', want"),
    ("config.json", ("settings", "std"), [None], "std (None,) want numbers"),
    ("last", ("loader", "position"), 9999, "position is 9999"),
    ("last", ("history", "rows", 0, "loss"), "x", "state is malformed"),
    ("last", ("history", "running", "loss"), None, "state is malformed"),
    ("last", ("generator",), {}, "no field 'seed'"),
    ("last", ("generator", "words", "key"), [], "wanted what get_state() gives"),
    ("last", ("schedule", "schedule"), "StepLR", "wanted such as {'schedule': 'CosineAnnealingLR'"),
]


@pytest.mark.parametrize("file, place, value, message", DAMAGES)
def test_damaged_fields_are_refused(tmp_path, finished, capsys, file, place, value, message):
    shutil.copytree(finished, tmp_path / "run")

    def change(inner):
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value

    if file == "last":
        edit(tmp_path / "run/last", change)
    else:
        whole = json.loads((tmp_path / "run" / file).read_text())
        change(whole)
        (tmp_path / "run" / file).write_text(json.dumps(whole))
    assert main(["train", "--resume", "run"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and message in printed.err and len(printed.err.splitlines()) == 1


def test_help_states_the_defaults(capsys):
    assert main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "passes over the training images; default 20 (digits), 10 (mnist), 30 (cifar10)" in text
    assert "default adam, sgd (resnet)" in text
    assert all(name in text for name in models.MODELS)


def test_help_is_one_screen_with_an_example_a_command(capsys):
    """Each example is one that the parser takes."""
    assert main([]) == 2 and main(["--help"]) == 0
    printed = capsys.readouterr()
    assert printed.out == printed.err
    lines = printed.out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    examples = [line[:43].split() for line in lines if line.startswith("  minigrad ")]
    assert {words[1] for words in examples} == COMMANDS.keys()
    for _, *words in examples:
        assert parser().parse_args(words).command == words[0]
