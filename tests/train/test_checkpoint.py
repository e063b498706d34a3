"""Checkpoints: what comes back, the ones before the newest, what ranks do together, and what is refused."""

import numpy as np
import pytest

import minigrad
from minigrad import checkpoint, nn
from minigrad.checkpoint import CheckpointError, CheckpointWarning
from minigrad.parallel import CommunicationError, run_local
from tests.train.checkpoint_parts import edit, everything, file_of, state_of, step, tensors_of, told

EXTRA = [float("inf"), [float("nan")], {"tensor": "x"}, 10**30, 0.1 + 0.2, "\u2028\ud800", '"sha256":"' + 64 * "0"]
GENERATOR = minigrad.default_generator


def loaded(folder, **options):
    """What parts that trained otherwise hold after a checkpoint was loaded into them."""
    checkpoint.load(folder, **(others := everything(seed=1, steps=1)), **options)
    return told(others)


def test_everything_comes_back_bit_for_bit_and_goes_on(tmp_path):
    parts = everything()
    wanted, drawn = told(parts), told(GENERATOR)
    checkpoint.save(tmp_path, **parts, extra=EXTRA)
    others = everything(seed=1, steps=1)
    assert told(others) != wanted
    assert repr(checkpoint.load(tmp_path, **others, generator=GENERATOR)) == repr(EXTRA)
    assert told(others) == wanted and told(GENERATOR) == drawn
    for one in (parts, others):
        minigrad.manual_seed(3)
        step(one)
    assert told(others) == told(parts)


def test_one_file_holds_tensors_by_name_in_logical_order_and_the_rest_as_json(tmp_path):
    parts, average = everything(), nn.Linear(2, 2)
    checkpoint.save(tmp_path, **parts, average=average)
    tensors, state, model = tensors_of(tmp_path), state_of(tmp_path), parts["model"].state_dict()
    for name, tensor in model.items():
        np.testing.assert_array_equal(tensors[f"model.{name}"], np.asarray(tensor))
    assert tensors["model.0.weight"].shape == (3, 2, 3, 3)
    moment = parts["optimizer"].state_dict()["state"][0]["exp_avg"]
    np.testing.assert_array_equal(tensors["optimizer.state.0.exp_avg"], moment)
    assert state.keys() == {*parts, "average", "generator", "extra", "versions", "optimizer_kind"}
    assert state["versions"]["minigrad"] == minigrad.__version__ and state["versions"]["numpy"] == np.__version__
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1.safetensors"]
    assert minigrad.load_weights(file_of(tmp_path), "model.").keys() == model.keys()
    other, drawn = nn.Linear(2, 2), told(GENERATOR)
    checkpoint.load(tmp_path, average=other)  # parts can be loaded alone
    assert told(other) == told(average) and told(GENERATOR) == drawn


def test_the_hash_is_of_names_shapes_types_and_numbers():
    bare = nn.Linear(4, 1, bias=False)
    layers = nn.Linear(4, 1), nn.Linear(4, 1, dtype="float64"), nn.Linear(2, 2, bias=False), bare
    for parameter in [parameter for layer in layers for parameter in layer.parameters()]:
        parameter.array[...] = 0
    found = [checkpoint.weights_hash(layer) for layer in layers]
    bare.weight.array[0, 1] += 1
    assert len({*found, checkpoint.weights_hash(bare)}) == len(layers) + 1


# ---- the ones before -------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path):
    """A folder in which three checkpoints were saved, what the last two hold, and the parts."""
    parts, found = everything(), []
    for _ in range(3):
        checkpoint.save(tmp_path, **parts)
        found.append(told(parts))
        step(parts)
    return tmp_path, found[1:], parts


def test_the_last_two_are_kept_or_as_many_as_wanted(two):
    folder, (before, newest), parts = two
    assert checkpoint.numbers(folder) == [2, 3] and checkpoint.find(folder)[::2] == (3, None)
    assert loaded(folder) == newest and loaded(folder, number=2) == before
    for keep, kept in ((3, [2, 3, 4]), (1, [5]), (7, [5, 6])):
        checkpoint.save(folder, **parts, keep=keep)
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
        with pytest.warns(CheckpointWarning, match=r"checkpoint-3.*; going on from the one before") as caught:
            checkpoint.load(folder, model=parts["model"])
        assert caught[0].filename == __file__ and checkpoint.find(folder)[::2] == (2, str(caught[0].message))
        with pytest.raises(CheckpointError, match="cannot load .*checkpoint-3.safetensors: "):
            loaded(folder, number=3)
    with pytest.warns(CheckpointWarning):
        assert loaded(folder) == before
    checkpoint.save(folder, **parts)
    assert checkpoint.numbers(folder) == [2, 4] and len(list(folder.iterdir())) == 2
    assert loaded(folder, number=2) == before and loaded(folder) == told(parts)
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="cannot load .*checkpoint-4.safetensors: "):
        loaded(folder)


def test_rank_0_writes_and_reads_for_all(tmp_path):
    """As on hosts that share no disk; all go on from the one before where the newest is torn."""

    def run(world):
        folder, parts, others = tmp_path / f"of rank {world.rank}", everything(), everything(seed=1)
        for extra in (1, 2):
            checkpoint.save(folder, **parts, extra=extra, world=world)
        assert checkpoint.load(folder, **others, world=world) == 2 and told(others) == told(parts)
        if world.rank == 0:
            file_of(folder).write_bytes(b"torn")
        world.barrier()
        assert checkpoint.load(folder, **others, world=world) == 1
        with pytest.raises(CheckpointError, match="of rank 0/absent holds no checkpoint"):
            checkpoint.load(folder / "absent", **others, world=world)

    with pytest.warns(CheckpointWarning, match="checkpoint-2.safetensors: ") as caught:
        run_local(run, 3)
    assert len(caught) == 1 and [path.name for path in tmp_path.iterdir()] == ["of rank 0"]


# ---- refusals --------------------------------------------------------------------------------------------------------


FAULTS = {  # what is changed in a good checkpoint, though its SHA-256 is right: what the error says
    "version 2 of a minigrad checkpoint, .*load_weights": lambda state, tensors, about: about.update(version="2"),
    "no field 'model.0.weight'": lambda state, tensors, about: tensors.pop("model.0.weight"),
    "no field 'extra'": lambda state, *_: state.pop("extra"),
    "no field 'optimizer'": lambda state, *_: state.pop("optimizer"),
    "optimizer is SGD, this one Adam": lambda state, *_: state.update(optimizer_kind="SGD"),
    "no field 'rows'": lambda state, *_: state["history"].pop("rows"),
    r"0.bias has shape \(9,\)": lambda state, tensors, about: tensors.update({"model.0.bias": np.zeros(9)}),
    r"betas\[1\] is 7": lambda state, *_: state["optimizer"]["param_groups"][0].update(betas=[0.9, 7]),
    "'base_lrs': ": lambda state, *_: state["schedule"].update(base_lrs=[0.1, 0.2]),
    r"\[-1.0, 2.0": lambda state, *_: state["scaler"].update(scale=-1),
    "set_state: ": lambda state, *_: state["generator"].update(step=-1),
}


@pytest.mark.parametrize("words", FAULTS)
def test_refusal_names_file_and_reason_and_changes_nothing(tmp_path, words):
    checkpoint.save(tmp_path, **everything())
    edit(tmp_path, FAULTS[words])
    others = everything(seed=1, steps=2)
    before = told(others), told(GENERATOR)
    with pytest.raises(CheckpointError, match=f"cannot load .*{tmp_path}/checkpoint-1.safetensors: .*{words}"):
        checkpoint.load(tmp_path, **others, generator=GENERATOR)
    assert (told(others), told(GENERATOR)) == before


class Other:
    """A part that raises an error when its state is taken, or given."""

    def __init__(self, error, when):
        self.error, self.when = error, when

    def state_dict(self):
        if self.when == "taken":
            raise self.error
        return {}

    def load_state_dict(self, state):
        if self.when == "given":
            self.when = ""
            raise self.error


def test_an_interruption_changes_nothing_and_a_lost_rank_stays_what_it_is(tmp_path):
    checkpoint.save(tmp_path, **everything(), last=Other(None, ""))
    others = everything(seed=1, steps=2)
    before = told(others)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.load(tmp_path, **others, last=Other(KeyboardInterrupt(), "given"))
    lost = Other(CommunicationError("rank 1 is gone"), "taken")
    for call in (checkpoint.save, checkpoint.load):
        with pytest.raises(CommunicationError, match="rank 1 is gone"):
            call(tmp_path, **others, last=lost)
    assert told(others) == before and checkpoint.numbers(tmp_path) == [1]


def test_no_checkpoint(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path, tmp_path / "absent", tmp_path / "file/under"):
        assert not checkpoint.exists(folder) and checkpoint.numbers(folder) == []
        for call in (checkpoint.find, checkpoint.load):
            with pytest.raises(CheckpointError, match="holds no checkpoint"):
                call(folder)
