"""The checkpoint before the newest, checkpoints of several ranks, the hash of weights."""

import os

import pytest

from minigrad import checkpoint, nn
from minigrad.checkpoint import CheckpointError
from minigrad.parallel import CommunicationError, run_local
from tests.checkpoint_parts import bits, step, trained


def states(folder, previous):
    others = trained(seed=1)
    checkpoint.load(folder, *others, previous=previous)
    return bits(*others)


@pytest.fixture
def two(tmp_path):
    """A folder with two checkpoints, the bits of both, and the parts."""
    parts, found = trained(), []
    for _ in range(3):
        checkpoint.save(tmp_path, *parts, keep_previous=True)
        found.append(bits(*parts))
        step(*parts)
    return tmp_path, found[1:], parts


def test_the_one_before_is_kept_and_no_other(two):
    folder, (before, newest), _ = two
    assert states(folder, False) == newest and states(folder, True) == before
    assert len(list(folder.iterdir())) == 4


def test_without_it_the_error_says_so(tmp_path):
    checkpoint.save(tmp_path, *trained())
    with pytest.raises(CheckpointError, match=r"previous.json is not there"):
        checkpoint.load(tmp_path, previous=True)


def test_a_damaged_one_does_not_take_the_place_of_a_whole_one(two):
    folder, (before, _), parts = two
    newest = max(folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoint.load(folder)
    checkpoint.save(folder, *parts, keep_previous=True)
    assert states(folder, True) == before and states(folder, False) == bits(*parts)


def test_saving_the_same_again_keeps_the_one_before(two):
    folder, (before, newest), _ = two
    parts = trained(seed=1)
    checkpoint.load(folder, *parts)
    checkpoint.save(folder, *parts, extra="again", keep_previous=True)
    assert states(folder, True) == before and states(folder, False) == newest


@pytest.mark.parametrize("call", range(6))
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_both(two, monkeypatch, function, call):
    folder, (before, newest), parts = two
    real, calls = getattr(os, function), []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == call + 1:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(os, function, failing)
    if call >= (3 if function == "replace" else 6):
        checkpoint.save(folder, *parts, keep_previous=True)
    else:
        with pytest.raises(CheckpointError, match="No space left"):
            checkpoint.save(folder, *parts, keep_previous=True)
    monkeypatch.undo()
    assert states(folder, False) in (newest, bits(*parts))
    assert states(folder, True) in (before, newest)


def test_rank_0_writes_and_reads_for_all(tmp_path):
    def run(world):
        folder = tmp_path / f"of rank {world.rank}"  # as on hosts that share no disk
        parts, others = trained(), trained(seed=1)
        checkpoint.save(folder, *parts, extra=[1], world=world)
        assert checkpoint.load(folder, *others, world=world) == [1]
        return bits(*others) == bits(*parts)

    assert run_local(run, 3) == [True] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["of rank 0"]


def test_all_ranks_hear_that_there_is_none(tmp_path):
    def run(world):
        with pytest.raises(CheckpointError, match="holds no checkpoint"):
            checkpoint.load(tmp_path, nn.Linear(2, 2), world=world)
        return world.broadcast_bytes(b"still there")

    assert run_local(run, 3) == [b"still there"] * 3


def test_a_rank_that_cannot_write_ends_all(tmp_path):
    (tmp_path / "file").write_text("in the way")

    def run(world):
        checkpoint.save(tmp_path / "file", nn.Linear(2, 2), world=world)
        if world.rank:
            with pytest.raises(CommunicationError, match="rank 0 ended: CheckpointError"):
                world.barrier()
        else:
            world.barrier()

    with pytest.raises(CheckpointError, match="cannot save"):
        run_local(run, 2, timeout=20)


def test_the_hash_is_of_names_shapes_types_and_numbers():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    found = checkpoint.weights_hash(model)
    assert found == checkpoint.weights_hash(model) and len(found) == 64
    model[1].running_mean.data[1] += 1
    assert checkpoint.weights_hash(model) != found
    layers = nn.Linear(4, 1), nn.Linear(4, 1, dtype="float64"), nn.Linear(2, 2, bias=False), nn.Linear(4, 1, bias=False)
    for layer in layers:
        for parameter in layer.parameters():
            parameter.data[...] = 0
    assert len({checkpoint.weights_hash(layer) for layer in layers}) == len(layers)
