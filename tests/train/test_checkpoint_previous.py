"""The checkpoints before the newest, checkpoints of several ranks, the hash of weights."""

import pytest

from minigrad import checkpoint, nn
from minigrad.checkpoint import CheckpointError, CheckpointWarning
from minigrad.parallel import CommunicationError, run_local
from tests.train.checkpoint_parts import bits, file_of, step, trained


def states(folder, number=None):
    others = trained(seed=1)
    checkpoint.load(folder, *others, number=number)
    return bits(*others)


@pytest.fixture
def two(tmp_path):
    """A folder with two checkpoints, the bits of both, and the parts."""
    parts, found = trained(), []
    for _ in range(3):
        checkpoint.save(tmp_path, *parts)
        found.append(bits(*parts))
        step(*parts)
    return tmp_path, found[1:], parts


def test_the_one_before_is_kept_and_no_other(two):
    folder, (before, newest), _ = two
    assert checkpoint.numbers(folder) == [2, 3] and checkpoint.find(folder) == (3, None)
    assert states(folder) == states(folder, 3) == newest and states(folder, 2) == before
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("keep", [1, 2, 3, 7])
def test_the_last_ones_are_kept(tmp_path, keep):
    model, found = nn.Linear(2, 2), []
    for number in range(1, 6):
        checkpoint.save(tmp_path, model, extra=number, keep=keep)
        found.append([checkpoint.load(tmp_path, number=kept) for kept in checkpoint.numbers(tmp_path)])
    assert found == [list(range(max(1, number + 1 - keep), number + 1)) for number in range(1, 6)]
    checkpoint.save(tmp_path, model, extra=6)
    assert checkpoint.numbers(tmp_path) == [5, 6]


def truncated(file):
    file.write_bytes(file.read_bytes()[:-1])


def flipped(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def zeroed(file):
    """As some file systems leave what was not written out when the power went."""
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize("damage", [truncated, flipped, zeroed])
def test_the_one_before_takes_the_place_of_a_torn_one(two, damage):
    """And the next save keeps the one before, not the torn one."""
    folder, (before, newest), parts = two
    damage(file_of(folder))
    with pytest.warns(CheckpointWarning, match=r"checkpoint-3.*damaged: .*; going on from the one before") as caught:
        assert states(folder) == before
    assert caught[0].filename == __file__
    assert checkpoint.find(folder) == (2, str(caught[0].message))
    with pytest.raises(CheckpointError, match=r"checkpoint-3.safetensors"):
        states(folder, 3)
    checkpoint.save(folder, *parts)
    assert checkpoint.numbers(folder) == [2, 4] and len(list(folder.iterdir())) == 2
    assert states(folder, 2) == before and states(folder) == bits(*parts)


def test_where_all_are_torn_the_newest_is_named(two):
    folder, _, parts = two
    for file in folder.iterdir():
        truncated(file)
    with pytest.raises(CheckpointError, match=r"checkpoint-3.safetensors: it is damaged"):
        checkpoint.load(folder, *parts)


def test_the_one_before_is_not_taken_for_another_model(two):
    folder, _, _ = two
    with pytest.raises(CheckpointError, match=r"checkpoint-3.safetensors: .*missing weight, bias; unexpected 0.weight"):
        checkpoint.load(folder, nn.Linear(2, 2))


def test_saving_the_same_again_keeps_the_one_before(two):
    folder, (_, newest), _ = two
    parts = trained(seed=1)
    checkpoint.load(folder, *parts)
    checkpoint.save(folder, *parts, extra="again")
    assert states(folder, 3) == states(folder, 4) == newest


def test_rank_0_writes_and_reads_for_all(tmp_path):
    def run(world):
        folder = tmp_path / f"of rank {world.rank}"  # as on hosts that share no disk
        parts, others = trained(), trained(seed=1)
        checkpoint.save(folder, *parts, extra=[1], world=world)
        assert checkpoint.load(folder, *others, world=world) == [1]
        return bits(*others) == bits(*parts)

    assert run_local(run, 3) == [True] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["of rank 0"]


def test_all_ranks_go_on_from_the_one_before(two):
    folder, (before, _), _ = two
    truncated(file_of(folder))

    def run(world):
        others = trained(seed=1)
        checkpoint.load(folder, *others, world=world)
        return bits(*others) == before

    with pytest.warns(CheckpointWarning, match="checkpoint-3.safetensors: it is damaged") as caught:
        assert run_local(run, 3) == [True] * 3
    assert len(caught) == 1


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
    model[1].running_mean.array[1] += 1
    assert checkpoint.weights_hash(model) != found
    layers = nn.Linear(4, 1), nn.Linear(4, 1, dtype="float64"), nn.Linear(2, 2, bias=False), nn.Linear(4, 1, bias=False)
    for layer in layers:
        for parameter in layer.parameters():
            parameter.array[...] = 0
    assert len({checkpoint.weights_hash(layer) for layer in layers}) == len(layers)
