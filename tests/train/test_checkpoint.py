"""Checkpoints: what comes back, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import checkpoint, nn, optim
from minigrad.checkpoint import CheckpointError
from tests.train.checkpoint_faults import FAULTS
from tests.train.checkpoint_parts import (
    all_bits,
    bits,
    everything,
    file_of,
    save_everything,
    state_of,
    step,
    tensors_of,
    trained,
)


@pytest.fixture
def saved(tmp_path):
    """A folder with a checkpoint, and what it was made of."""
    parts = trained()
    checkpoint.save(tmp_path, *parts, extra={"note": [1, 2.5, None]})
    return tmp_path, parts


def test_everything_comes_back_bit_for_bit(tmp_path):
    parts = everything()
    wanted = all_bits(parts)
    save_everything(tmp_path, parts, extra={"note": [1, 2.5, None]})
    others = everything(seed=1, steps=1)
    assert all_bits(others) != wanted
    assert checkpoint.load(tmp_path, **others) == {"note": [1, 2.5, None]}
    assert all_bits(others) == wanted
    for seed_of_step in range(3):
        for one in (parts, others):
            minigrad.manual_seed(seed_of_step)
            step(one["model"], one["optimizer"], one["schedule"])
    assert all_bits(others) == all_bits(parts)


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW, optim.RMSprop, optim.Adagrad])
def test_other_optimisers_come_back(tmp_path, kind):
    parts, others = trained(kind=kind), trained(seed=1, kind=kind)
    checkpoint.save(tmp_path, *parts)
    checkpoint.load(tmp_path, *others)
    assert bits(*others) == bits(*parts)


def test_one_file_holds_tensors_by_name_in_logical_order_and_the_rest_as_json(tmp_path):
    parts = everything()
    save_everything(tmp_path, parts)
    tensors, state, model = tensors_of(tmp_path), state_of(tmp_path), parts["model"].state_dict()
    for name, tensor in model.items():
        np.testing.assert_array_equal(tensors[f"model.{name}"], np.asarray(tensor))
    assert tensors["model.0.weight"].shape == (3, 2, 3, 3)
    moment = parts["optimizer"].state_dict()["state"][0]["exp_avg"]
    np.testing.assert_array_equal(tensors["optimizer.state.0.exp_avg"], moment)
    assert {"optimizer", "schedule", "scaler", "loader", "history", "generator", "extra"} < state.keys()
    assert state["versions"]["minigrad"] == minigrad.__version__ and state["versions"]["numpy"] == np.__version__
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1.safetensors"]
    assert minigrad.load_weights(file_of(tmp_path), "model.").keys() == model.keys()


def test_any_part_with_a_state_comes_along(tmp_path):
    ours, theirs = nn.Linear(2, 2), nn.Linear(2, 2)
    checkpoint.save(tmp_path, nn.Linear(1, 1), ema=ours)
    checkpoint.load(tmp_path, ema=theirs)
    assert checkpoint.weights_hash(ours) == checkpoint.weights_hash(theirs)


def test_parts_can_be_loaded_alone(saved):
    folder, parts = saved
    model = trained(seed=1, steps=0)[0]
    drawn = minigrad.default_generator.get_state()
    checkpoint.load(folder, model)
    assert bits(model, *parts[1:]) == bits(*parts) and minigrad.default_generator.get_state() == drawn
    assert checkpoint.load(folder) == {"note": [1, 2.5, None]}
    _, optimizer, schedule = trained(seed=1)
    checkpoint.load(folder, None, optimizer)
    checkpoint.load(folder, schedule=schedule)
    assert bits(model, optimizer, schedule) == bits(*parts)


def test_random_numbers_go_on(tmp_path):
    minigrad.manual_seed(7)
    minigrad.rand(3)
    checkpoint.save(tmp_path, nn.Linear(2, 2))
    wanted = minigrad.rand(4).tolist()
    checkpoint.load(tmp_path, generator=minigrad.default_generator)
    assert minigrad.rand(4).tolist() == wanted


VALUES = [float("inf"), [float("nan")], {}, {"tensor": "x"}, 10**30, 0.1 + 0.2, "\u2028\ud800", '"sha256":"' + 64 * "0"]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_extra_comes_back_whatever_it_looks_like(tmp_path, value):
    checkpoint.save(tmp_path, nn.Linear(1, 1), extra=value)
    assert repr(checkpoint.load(tmp_path)) == repr(value)


def test_the_code_of_the_page_runs_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "examples/docs/checkpoints.md"
    (code,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    shorter = {}
    exec(code.replace("epochs=2", "epochs=1"), shorter)
    exec(code, resumed := {})
    whole = tmp_path / "whole"
    whole.mkdir()
    monkeypatch.chdir(whole)
    exec(code, unbroken := {})
    assert checkpoint.weights_hash(resumed["model"]) == checkpoint.weights_hash(unbroken["model"])
    assert resumed["history"]["loss"] == unbroken["history"]["loss"] and len(resumed["history"]) == 2


# ---- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_refusal_names_file_and_reason_and_changes_nothing(tmp_path, fault):
    save_everything(tmp_path, everything())
    damage, words = FAULTS[fault]
    damage(tmp_path)
    others = everything(seed=1, steps=2)
    before = all_bits(others)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path, **others)
    message = str(caught.value)
    assert f"cannot load {tmp_path / 'checkpoint-1.safetensors'}: " in message
    assert all(word in message for word in words.split("; ")) and "\x00" not in message
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, minigrad.MinigradError)
    assert all_bits(others) == before


def test_an_empty_folder_and_none(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path, tmp_path / "absent", tmp_path / "file", tmp_path / "file/under"):
        assert not checkpoint.exists(folder) and checkpoint.numbers(folder) == []
        with pytest.raises(CheckpointError, match="holds no checkpoint"):
            checkpoint.load(folder)
    with pytest.raises(CheckpointError, match="cannot save .*file"):
        checkpoint.save(tmp_path / "file", nn.Linear(1, 1))


def test_a_checkpoint_of_an_earlier_release_is_refused_with_what_to_do(tmp_path):
    from safetensors.numpy import save_file

    weights = {name: np.asarray(tensor) for name, tensor in nn.Linear(2, 2).state_dict().items()}
    save_file(weights, tmp_path / "weights-7.safetensors")
    (tmp_path / "checkpoint-7.json").write_text("{}")
    assert checkpoint.exists(tmp_path)
    for call in (checkpoint.find, checkpoint.load):
        with pytest.raises(CheckpointError, match="checkpoint-7.json is of an earlier release") as said:
            call(tmp_path)
    path = re.search(r"load_weights\('(.*?)'\)", str(said.value))[1].replace("N", "7")
    nn.Linear(2, 2).load_state_dict(minigrad.load_weights(path))


ARGUMENTS = [
    (lambda folder: checkpoint.save(folder, [1]), TypeError, r"save: model is \[1\], wanted what has state_dict"),
    (lambda folder: checkpoint.save(folder, nn.Linear(1, 1), 3), TypeError, "save: optimizer is 3, wanted"),
    (lambda folder: checkpoint.save(folder, nn.Linear(1, 1), loader=[]), TypeError, r"save: loader is \[\], wanted"),
    (lambda folder: checkpoint.save(folder, nn.Linear(1, 1), keep=0), ValueError, "save: keep is 0, wanted at least 1"),
    (lambda folder: checkpoint.save(folder, nn.Linear(1, 1), keep=1.5), TypeError, "save: keep is 1.5, wanted an int"),
    (lambda folder: checkpoint.load(folder, "x"), TypeError, "load: model is 'x', wanted what has state_dict"),
    (lambda folder: checkpoint.load(folder, generator=1), TypeError, "load: generator is 1, wanted"),
    (lambda folder: checkpoint.load(folder, number=3), ValueError, r"number is 3, wanted one of \[1\]"),
    (lambda folder: checkpoint.load(folder, number="../1"), ValueError, "number is '../1', wanted one of"),
    (
        lambda folder: checkpoint.save(folder, nn.Linear(1, 1), extra={"array": np.zeros(3)}),
        ValueError,
        "not JSON serializable",
    ),
    (lambda folder: checkpoint.save(folder, nn.Linear(1, 1), extra={1: {2}}), ValueError, "not JSON serializable"),
]


@pytest.mark.parametrize("number", range(len(ARGUMENTS)))
def test_arguments_are_refused_before_anything_is_written(saved, number):
    folder, _ = saved
    call, kind, words = ARGUMENTS[number]
    before = sorted(folder.iterdir())
    with pytest.raises(kind, match=words) as caught:
        call(folder)
    assert isinstance(caught.value, minigrad.MinigradError)
    assert sorted(folder.iterdir()) == before and checkpoint.load(folder, *trained(seed=1)) == {"note": [1, 2.5, None]}


def test_an_interruption_while_loading_leaves_all_as_it_was(saved, monkeypatch):
    folder, _ = saved
    others = trained(seed=1, steps=2)
    before = bits(*others)
    real, calls = type(others[2]).load_state_dict, []

    def interrupted(self, state):
        real(self, state)
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(type(others[2]), "load_state_dict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.load(folder, *others)
    assert bits(*others) == before
