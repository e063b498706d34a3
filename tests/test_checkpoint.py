"""Checkpoints: what comes back, and what is refused."""

import json

import numpy as np
import pytest

import minigrad
from minigrad import checkpoint, optim
from minigrad.checkpoint import CheckpointError
from tests.checkpoint_parts import bits, step, trained

INDEX = "checkpoint.json"


@pytest.fixture
def saved(tmp_path):
    """A folder with a checkpoint, and what it was made of."""
    parts = trained()
    checkpoint.save(tmp_path, *parts, extra={"note": [1, 2.5, None]})
    return tmp_path, parts


def test_everything_comes_back_bit_for_bit(saved):
    folder, parts = saved
    others = trained(seed=1, steps=1)
    assert bits(*others) != bits(*parts)
    assert checkpoint.load(folder, *others) == {"note": [1, 2.5, None]}
    assert bits(*others) == bits(*parts)
    for seed_of_step in range(3):
        for one in (parts, others):
            minigrad.manual_seed(seed_of_step)
            step(*one)
    assert bits(*others) == bits(*parts)


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW, optim.RMSprop])
def test_other_optimisers_come_back(tmp_path, kind):
    parts, others = trained(kind=kind), trained(seed=1, kind=kind)
    checkpoint.save(tmp_path, *parts)
    checkpoint.load(tmp_path, *others)
    assert bits(*others) == bits(*parts)


def test_files_have_logical_order_and_plain_names(saved):
    from safetensors.numpy import load_file

    folder, (model, optimizer, _) = saved
    index = json.loads((folder / INDEX).read_text())
    tensors = load_file(folder / index["tensors"])
    weight = tensors["model.0.weight"]
    assert weight.shape == (3, 2, 3, 3) and weight.flags.c_contiguous
    np.testing.assert_array_equal(weight, np.asarray(model.state_dict()["0.weight"]))
    np.testing.assert_array_equal(tensors["optimizer.0.exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    assert sorted(path.name for path in folder.iterdir()) == [INDEX, index["tensors"]]


def test_parts_can_be_loaded_alone(saved):
    folder, parts = saved
    model = trained(seed=1, steps=0)[0]
    checkpoint.load(folder, model)
    assert bits(model, *parts[1:]) == bits(*parts)
    assert checkpoint.load(folder) == {"note": [1, 2.5, None]}


def test_old_tensors_and_leftovers_go(saved):
    folder, parts = saved
    (folder / (checkpoint.PARTIAL + "123-x")).write_bytes(b"torn")
    (folder / "mine.txt").write_text("kept")
    step(*parts)
    checkpoint.save(folder, *parts)
    index = json.loads((folder / INDEX).read_text())
    assert {path.name for path in folder.iterdir()} == {INDEX, index["tensors"], "mine.txt"}


# ---- refusals ------------------------------------------------------------------------------------------


def tensors_of(folder):
    return next(folder.glob("*.safetensors"))


def edit(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def flip_bit(folder):
    content = bytearray(tensors_of(folder).read_bytes())
    content[-5] ^= 4
    tensors_of(folder).write_bytes(content)


def cut(folder):
    tensors_of(folder).write_bytes(tensors_of(folder).read_bytes()[:-7])


def retensor(change):
    """Rewrite the tensors with the right hash and name: damage that the hash cannot see."""

    def damage(folder):
        import hashlib

        from safetensors.numpy import load_file, save

        tensors = load_file(tensors_of(folder))
        change(tensors)
        content = save(tensors)
        digest = hashlib.sha256(content).hexdigest()
        name = checkpoint.TENSORS.format(digest[:16])
        (folder / name).write_bytes(content)
        edit(folder, lambda index: index.update(sha256=digest, tensors=name))

    return damage


def garbage(folder):
    import hashlib

    content = b"\xff" * 100
    digest = hashlib.sha256(content).hexdigest()
    name = checkpoint.TENSORS.format(digest[:16])
    (folder / name).write_bytes(content)
    edit(folder, lambda index: index.update(sha256=digest, tensors=name))


FAULTS = {
    "no index": (lambda folder: (folder / INDEX).unlink(), "holds no checkpoint"),
    "no tensors": (lambda folder: tensors_of(folder).unlink(), "No such file"),
    "one bit": (flip_bit, "is damaged"),
    "cut short": (cut, "is damaged"),
    "index cut short": (lambda folder: (folder / INDEX).write_text('{"format": "minigrad'), "Unterminated"),
    "index no text": (lambda folder: (folder / INDEX).write_bytes(b"\xff\xfe\x00"), "cannot load"),
    "index a list": (lambda folder: (folder / INDEX).write_text("[]"), "not the index"),
    "index deep": (lambda folder: (folder / INDEX).write_text("[" * 100_000), "cannot load"),
    "other format": (lambda folder: edit(folder, lambda i: i.update(format="x")), "not the index"),
    "other version": (lambda folder: edit(folder, lambda i: i.update(version=2)), "version is 2"),
    "no hash": (lambda folder: edit(folder, lambda i: i.pop("sha256")), "no field 'sha256'"),
    "hash a number": (lambda folder: edit(folder, lambda i: i.update(sha256=7)), "cannot load"),
    "elsewhere": (lambda folder: edit(folder, lambda i: i.update(tensors="../x")), "names '../x'"),
    "no extra": (lambda folder: edit(folder, lambda i: i.pop("extra")), "no field 'extra'"),
    "no optimizer": (lambda folder: edit(folder, lambda i: i.pop("optimizer")), "holds no optimizer"),
    "no schedule": (lambda folder: edit(folder, lambda i: i.pop("schedule")), "holds no schedule"),
    "optimizer a list": (lambda folder: edit(folder, lambda i: i.update(optimizer=[])), "cannot load"),
    "schedule a number": (lambda folder: edit(folder, lambda i: i.update(schedule=3)), "cannot load"),
    "other optimizer": (
        lambda folder: edit(folder, lambda i: i["optimizer"].update(kind="SGD")),
        "optimizer is SGD, this one Adam",
    ),
    "groups": (
        lambda folder: edit(folder, lambda i: i["optimizer"]["param_groups"].append({"params": []})),
        "wanted groups of",
    ),
    "state of nothing": (
        lambda folder: edit(folder, lambda i: i["optimizer"]["state"].update({"99": {"step": 1}})),
        "99",
    ),
    "missing": (retensor(lambda tensors: tensors.pop("model.0.weight")), "missing 0.weight"),
    "unexpected": (
        retensor(lambda tensors: tensors.update({"model.9.weight": np.zeros(2, np.float32)})),
        "unexpected 9.weight",
    ),
    "shape": (
        retensor(lambda tensors: tensors.update({"model.0.bias": np.zeros(4, np.float32)})),
        "0.bias has shape",
    ),
    "type": (
        retensor(lambda tensors: tensors.update({"model.0.bias": np.zeros(3)})),
        "0.bias has elements float64",
    ),
    "moment": (
        retensor(lambda tensors: tensors.update({"optimizer.0.exp_avg": np.zeros(3, np.float32)})),
        "exp_avg",
    ),
    "moment of nothing": (
        retensor(lambda tensors: tensors.update({"optimizer.x.exp_avg": np.zeros(3, np.float32)})),
        "cannot load",
    ),
    "no safetensors": (garbage, "cannot load"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refusal_names_folder_and_reason_and_changes_nothing(saved, fault):
    folder, _ = saved
    damage, reason = FAULTS[fault]
    damage(folder)
    others = trained(seed=1, steps=2)
    before = bits(*others)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(folder, *others)
    assert str(folder) in str(caught.value) and reason in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, minigrad.MinigradError)
    assert bits(*others) == before


def test_a_later_part_that_refuses_leaves_the_earlier_ones(saved):
    """The optimiser and the schedule take the state, then the model refuses it."""
    folder, _ = saved
    retensor(lambda tensors: tensors.pop("model.4.bias"))(folder)
    others = trained(seed=1, steps=2)
    before = bits(*others)
    with pytest.raises(CheckpointError, match=r"missing 4\.bias"):
        checkpoint.load(folder, *others)
    assert bits(*others) == before


def test_extra_that_is_no_json(saved):
    folder, parts = saved
    with pytest.raises(CheckpointError, match="not JSON serializable"):
        checkpoint.save(folder, *parts, extra={"array": np.zeros(3)})
    assert checkpoint.load(folder, *trained(seed=1)) == {"note": [1, 2.5, None]}
