"""Checkpoints: what comes back, the ones before the newest, what ranks do together, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import checkpoint, nn
from minigrad.checkpoint import CheckpointError, CheckpointWarning
from minigrad.parallel import CommunicationError, run_local
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

EXTRA = [float("inf"), [float("nan")], {"tensor": "x"}, 10**30, 0.1 + 0.2, "\u2028\ud800", '"sha256":"' + 64 * "0"]


def test_everything_comes_back_bit_for_bit_and_goes_on(tmp_path):
    parts = everything()
    wanted = all_bits(parts)
    save_everything(tmp_path, parts, extra=EXTRA)
    others = everything(seed=1, steps=1)
    assert all_bits(others) != wanted
    assert repr(checkpoint.load(tmp_path, **others)) == repr(EXTRA)
    assert all_bits(others) == wanted
    drawn = minigrad.rand(4).tolist()
    checkpoint.load(tmp_path, generator=minigrad.default_generator)
    assert minigrad.rand(4).tolist() == drawn
    for one in (parts, others):
        minigrad.manual_seed(3)
        step(one["model"], one["optimizer"], one["schedule"])
    assert all_bits(others) == all_bits(parts)


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


def test_parts_can_be_loaded_alone_and_any_with_a_state_comes_along(tmp_path):
    parts, average = trained(), nn.Linear(2, 2)
    checkpoint.save(tmp_path, *parts, average=average)
    model, other = trained(seed=1, steps=0)[0], nn.Linear(2, 2)
    drawn = minigrad.default_generator.get_state()
    checkpoint.load(tmp_path, model, average=other)
    assert bits(model, *parts[1:]) == bits(*parts) and minigrad.default_generator.get_state() == drawn
    assert checkpoint.weights_hash(average) == checkpoint.weights_hash(other)
    _, optimizer, schedule = trained(seed=1)
    checkpoint.load(tmp_path, None, optimizer)
    checkpoint.load(tmp_path, schedule=schedule)
    assert bits(model, optimizer, schedule) == bits(*parts)


def test_the_code_of_the_page_runs_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "examples/docs/training.md"
    codes = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = (code for code in codes if "checkpoint" in code)
    exec(code.replace("epochs=2", "epochs=1"), {})
    exec(code, resumed := {})
    (tmp_path / "whole").mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    exec(code, unbroken := {})
    assert checkpoint.weights_hash(resumed["model"]) == checkpoint.weights_hash(unbroken["model"])
    assert resumed["history"]["loss"] == unbroken["history"]["loss"] and len(resumed["history"]) == 2


def test_the_hash_is_of_names_shapes_types_and_numbers():
    bare = nn.Linear(4, 1, bias=False)
    layers = nn.Linear(4, 1), nn.Linear(4, 1, dtype="float64"), nn.Linear(2, 2, bias=False), bare
    for layer in layers:
        for parameter in layer.parameters():
            parameter.array[...] = 0
    found = [checkpoint.weights_hash(layer) for layer in layers]
    bare.weight.array[0, 1] += 1
    assert len({*found, checkpoint.weights_hash(bare)}) == len(layers) + 1


# ---- the ones before -------------------------------------------------------------------------------------------------


def states(folder, number=None):
    others = trained(seed=1)
    checkpoint.load(folder, *others, number=number)
    return bits(*others)


@pytest.fixture
def two(tmp_path):
    """A folder in which three checkpoints were saved, the bits of the last two, and the parts."""
    parts, found = trained(), []
    for _ in range(3):
        checkpoint.save(tmp_path, *parts)
        found.append(bits(*parts))
        step(*parts)
    return tmp_path, found[1:], parts


def test_the_last_two_are_kept_or_as_many_as_wanted(two):
    folder, (before, newest), parts = two
    assert checkpoint.numbers(folder) == [2, 3] and checkpoint.find(folder) == (3, None)
    assert states(folder) == states(folder, 3) == newest and states(folder, 2) == before
    for keep, kept in ((3, [2, 3, 4]), (1, [5]), (7, [5, 6])):
        checkpoint.save(folder, *parts, keep=keep)
        assert checkpoint.numbers(folder) == kept and len(list(folder.iterdir())) == len(kept)


def test_the_one_before_takes_the_place_of_a_torn_one(two):
    """And the next save keeps the one before, not the torn one. Zeros are what a lost power leaves in some files."""
    folder, (before, _), parts = two
    path = file_of(folder)
    content = path.read_bytes()
    flipped = lambda at: content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
    places = range(0, len(content), len(content) // 20)
    for torn in (bytes(len(content)), *map(flipped, places), *(content[:at] for at in places)):
        path.write_bytes(torn)
        said = r"checkpoint-3.*damaged: .*; going on from the one before"
        with pytest.warns(CheckpointWarning, match=said) as caught:
            assert states(folder) == before
        assert caught[0].filename == __file__
        assert checkpoint.find(folder) == (2, str(caught[0].message))
        with pytest.raises(CheckpointError, match=r"checkpoint-3.safetensors"):
            states(folder, 3)
    checkpoint.save(folder, *parts)
    assert checkpoint.numbers(folder) == [2, 4] and len(list(folder.iterdir())) == 2
    assert states(folder, 2) == before and states(folder) == bits(*parts)
    with pytest.raises(CheckpointError, match=r"checkpoint-4.safetensors: .*missing weight, bias; unexpected 0.weight"):
        checkpoint.load(folder, nn.Linear(2, 2))
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"checkpoint-4.safetensors: it is damaged"):
        checkpoint.load(folder, *parts)


# ---- ranks -----------------------------------------------------------------------------------------------------------


def test_rank_0_writes_and_reads_for_all(tmp_path):
    """As on hosts that share no disk; all go on from the one before where the newest is torn."""

    def run(world, load=True):
        folder, parts, others = tmp_path / f"of rank {world.rank}", trained(), trained(seed=1)
        for extra in (1, 2):
            checkpoint.save(folder, *parts, extra=extra, world=world)
        assert checkpoint.load(folder, *others, world=world) == 2
        if world.rank == 0:
            file_of(folder).write_bytes(b"torn")
        world.barrier()
        assert checkpoint.load(folder, *others, world=world) == 1
        return bits(*others) == bits(*parts)

    with pytest.warns(CheckpointWarning, match="checkpoint-2.safetensors: it is damaged") as caught:
        assert run_local(run, 3) == [True] * 3
    assert len(caught) == 1 and [path.name for path in tmp_path.iterdir()] == ["of rank 0"]


def test_where_rank_0_cannot_write_all_ranks_end(tmp_path):
    (tmp_path / "file").write_text("in the way")

    def run(world):
        checkpoint.save(tmp_path / "file", nn.Linear(2, 2), world=world)
        with pytest.raises(CommunicationError, match="rank 0 ended: CheckpointError"):
            world.barrier()

    with pytest.raises(CheckpointError, match="cannot save"):
        run_local(run, 2, timeout=20)


# ---- refusals --------------------------------------------------------------------------------------------------------


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


def test_an_interruption_while_loading_leaves_all_as_it_was(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, *trained())
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
        checkpoint.load(tmp_path, *others)
    assert bits(*others) == before
