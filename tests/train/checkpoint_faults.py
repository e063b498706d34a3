"""Checkpoints that are wrong in every way that a row of FAULTS names: what is done to a good one, what the error says.

FAULTS[name] = (damage, words): damage(folder) changes the newest checkpoint of checkpoint_parts.everything(); the error
that names the file has all of the words. Where a fault is not one of the disk, the SHA-256 is right again: what that
sees is in the tests of single bits.
"""

import json
import os

import numpy as np

from tests.train.checkpoint_parts import edit, file_of, header_of, sealed, tensors_of

__all__ = ["FAULTS"]


def put(*path):
    """Put the last of the arguments at the end of a path of keys in the state; no value takes the key away."""
    *path, last, value = path

    def change(state):
        for key in path:
            state = state[key]
        if value is put:
            del state[last]
        else:
            state[last] = value

    return lambda folder: edit(folder, change)


def retensor(change):
    """Change the arrays by name."""

    def damage(folder):
        change(arrays := tensors_of(folder))
        edit(folder, lambda state: None, arrays)

    return damage


def reheader(change):
    """Change the header, as text."""

    def damage(folder):
        content = file_of(folder).read_bytes()
        header, end = header_of(content)
        text = change(json.dumps(header, separators=(",", ":"))).encode()
        file_of(folder).write_bytes(sealed(len(text).to_bytes(8, "little") + text + content[end:]))

    return damage


def instead(make):
    """Put something else where the file was."""

    def damage(folder):
        path = file_of(folder)
        path.unlink()
        make(path)

    return damage


FILES = {
    "a folder": (instead(os.mkdir), "Is a directory"),
    "other format": (reheader(lambda text: text.replace("minigrad checkpoint", "x")), "version 2 of a x, this release"),
    "other version": (reheader(lambda text: text.replace('"version":"2"', '"version":"3"')), "version 3 of a minigrad"),
    "no state": (reheader(lambda text: text.replace('"state"', '"estate"')), "no field 'state'"),
    "state no JSON": (reheader(lambda text: text.replace('"state":"', '"state":"{')), "cannot load"),
    "a tensor of 4 TiB": (reheader(lambda text: text.replace("[3,2,3,3]", "[1099511627776,1]")), "cannot load"),
}
MODEL = {
    "unexpected": (put("model", "9.x", {"__tensor__": "model.0.bias"}), "unexpected 9.x"),
    "no tensor": (retensor(lambda arrays: arrays.pop("model.0.weight")), "no field 'model.0.weight'"),
}


def several(folder):
    retensor(lambda arrays: arrays.update({"model.0.bias": np.zeros(9)}))(folder)
    put("model", "4.bias", put)(folder)
    put("optimizer", "param_groups", 0, "betas", [0.9, 7])(folder)
    put("schedule", "base_lrs", [0.1, 0.2])(folder)
    put("scaler", "scale", -1)(folder)
    put("loader", "position", -3)(folder)
    put("history", "steps", "x")(folder)
    put("generator", "step", -1)(folder)


PARTS = {
    "no extra": (put("extra", put), "no field 'extra'"),
    "no optimizer": (put("optimizer", put), "it holds no optimizer"),
    "other optimizer": (put("optimizer_kind", "SGD"), "optimizer is SGD, this one Adam"),
    "state of nothing": (put("optimizer", "state", "99", {"step": 1}), "state of parameter 99, which is in no group"),
    "rate NaN": (put("optimizer", "param_groups", 0, "lr", float("nan")), "lr is nan, wanted at least 0"),
    "schedule of another": (put("schedule", "gamma", 0.1), "CosineAnnealingLR.load_state_dict: got"),
    "history running": (put("history", "running", "loss", float("nan")), "History: state is malformed"),
    "everything": (
        several,
        "0.bias has shape (9,); missing 4.bias; betas[1] is 7, wanted; 'base_lrs': [0.1, 0.2]; scale is -1; "
        "position is -3; History: state; set_state: wanted",
    ),
}
FAULTS = FILES | MODEL | PARTS
