"""Checkpoints that are wrong in every way that a row of FAULTS names: what is done to a good one, what the error says.

FAULTS[name] = (damage, words): damage(folder) changes the files of a checkpoint of checkpoint_parts.everything(); the
error that names the file has all of the words. Where a fault is not one of the disk, the seals are right again: what
hashes see is in the tests of single bits.
"""

import hashlib
import json
import os

import numpy as np

from tests.checkpoint_parts import edit, index_file, tensors_file

__all__ = ["FAULTS", "seal"]

TERA = 1 << 40


def seal(folder, head):
    """Make these bytes, JSON without its last brace, the newest index, with the seal that belongs to them."""
    text = f',\n "sha256": "{hashlib.sha256(head).hexdigest()}"\n}}\n'
    index_file(folder).write_bytes(head + text.encode())


def head_of(folder):
    """What the seal of the newest index is of."""
    return index_file(folder).read_bytes().rsplit(b",\n", 1)[0]


def text(old, new):
    """Replace text in the index, which need not be JSON afterwards."""

    def damage(folder):
        head = head_of(folder)
        assert head.count(old) >= 1
        seal(folder, head.replace(old, new, 1))

    return damage


def put(*path):
    """Put the last of the arguments at the end of a path of keys in the index; no value takes the key away."""
    *path, last, value = path

    def change(index):
        for key in path:
            index = index[key]
        if value is put:
            del index[last]
        else:
            index[last] = value

    return lambda folder: edit(folder, change)


def content(kind, made, described=None):
    """Replace a file of tensors by these bytes; the index says so."""

    def damage(folder):
        tensors_file(folder, kind).write_bytes(made)
        entry = {"sha256": hashlib.sha256(made).hexdigest(), "bytes": len(made)}
        entry |= {} if described is None else {"tensors": described}
        edit(folder, lambda index: index["files"][kind].update(entry))

    return damage


def retensor(kind, change):
    """Change the arrays of a file of tensors, by name; the index says so."""

    def damage(folder):
        from safetensors.numpy import load_file, save

        arrays = load_file(tensors_file(folder, kind))
        change(arrays)
        content(kind, save(arrays), {name: f"{array.dtype} {list(array.shape)}" for name, array in arrays.items()})(
            folder
        )

    return damage


def header(text, data=b""):
    """A file of tensors with this header."""
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    return len(text).to_bytes(8, "little") + text + data


def same_tensors(change):
    """Weights whose header is changed, as JSON text, while the index goes on to say what it said."""

    def damage(folder):
        made = tensors_file(folder).read_bytes()
        size = int.from_bytes(made[:8], "little")
        content("weights", header(change(made[8 : 8 + size].rstrip()), made[8 + size :]))(folder)

    return damage


def sparse(path_of, size):
    """Let a file have a size without having bytes, and the index of it know."""

    def damage(folder):
        os.truncate(path_of(folder), size)
        if path_of is not index_file:
            edit(folder, lambda index: index["files"]["weights"].update(bytes=size))

    return damage


def instead(path_of, make):
    """Put something else where a file was."""

    def damage(folder):
        path = path_of(folder)
        path.unlink()
        make(path)

    return damage


GENERATOR = "wanted what get_state() gives"
HISTORY = "History: state is malformed"

DISK = {
    "no tensors": (lambda folder: tensors_file(folder).unlink(), "weights-1.safetensors is not there"),
    "no training": (lambda folder: tensors_file(folder, "training").unlink(), "training-1.safetensors is not there"),
    "tensors cut short": (lambda folder: os.truncate(tensors_file(folder), 99), "it has 99 bytes, want"),
    "tensors of no bytes": (lambda folder: os.truncate(tensors_file(folder), 0), "it has 0 bytes, want"),
    "index cut short": (lambda folder: os.truncate(index_file(folder), 300), "it is damaged"),
    "index of no bytes": (lambda folder: os.truncate(index_file(folder), 0), "it is damaged"),
    "index no text": (lambda folder: index_file(folder).write_bytes(b"\xff\xfe\x00" * 50), "it is damaged"),
    "index a bomb": (sparse(index_file, 1 << 33), "it has 8589934592 bytes, want at most"),
    "weights a bomb": (sparse(tensors_file, TERA), "has 1099511627776 bytes, want at most"),
    "index a folder": (instead(index_file, os.mkdir), "is not there"),
    "weights a folder": (instead(tensors_file, os.mkdir), "is not there"),
    "index a pipe": (instead(index_file, getattr(os, "mkfifo", os.mkdir)), "is not there"),
    "weights a pipe": (instead(tensors_file, getattr(os, "mkfifo", os.mkdir)), "is not there"),
    "weights a loop": (instead(tensors_file, lambda path: path.symlink_to(path)), "weights-1.safetensors"),
}
JSON = {
    "index a list": (lambda folder: seal(folder, b"[3"), "cannot load"),
    "index deep": (text(b'"extra"', b'"x": ' + b"[" * 100_000 + b"]" * 100_000 + b', "extra"'), "cannot load"),
    "index of twins": (text(b'"extra"', b'"format": 3, "extra"'), "the name 'format' stands there twice"),
    "a huge integer": (text(b'"position": 0', b'"position": 1' + b"0" * 5000), "cannot load"),
    "a large integer": (text(b'"position": 0', b'"position": 1' + b"0" * 3000), "position is"),
    "NaN": (text(b'"step": 3', b'"step": NaN'), "NaN stands there for a number"),
    "infinity": (text(b'"step": 3', b'"step": -Infinity'), "-Infinity stands there"),
    "beyond floats": (text(b'"step": 3', b'"step": 1e999'), "1e999 stands there"),
    "other format": (put("format", "x"), "not the index of a minigrad checkpoint"),
    "other version": (put("version", 2), "version is 2, this release reads version 1"),
    "no format": (put("format", put), "no field 'format'"),
    "no files": (put("files", put), "no field 'files'"),
    "files a list": (put("files", []), "cannot load"),
    "no weights": (put("files", "weights", put), "no field 'weights'"),
    "no hash": (put("files", "weights", "sha256", put), "cannot load"),
    "hash a number": (put("files", "weights", "sha256", 7), "what it says of its weights is malformed"),
    "size a text": (put("files", "weights", "bytes", "7"), "what it says of its weights is malformed"),
    "size a bool": (put("files", "training", "bytes", True), "what it says of its training is malformed"),
    "elsewhere": (put("files", "weights", "name", "../../x"), "cannot load"),
    "tensors a list": (put("files", "weights", "tensors", []), "what it says of its weights is malformed"),
    "no extra": (put("extra", put), "no field 'extra'"),
    "extra no value": (put("extra", {"float": "x"}), "stands there for a value"),
    "extra a tensor": (put("extra", {"tensor": "0.weight"}), "no field '0.weight'"),
}
HEADERS = {
    "no safetensors": (content("weights", b"\xff" * 100), "says that its header has 18446744073709551615 bytes"),
    "a short file": (content("weights", b"abc"), "cannot load"),
    "no header": (content("weights", header(b"")), "cannot load"),
    "header no JSON": (content("weights", header(b"{]")), "cannot load"),
    "header deep": (content("weights", header(b"[" * 100_000)), "cannot load"),
    "header a list": (content("weights", header([])), "cannot load"),
    "header of 4 TiB": (content("weights", (4 * TERA).to_bytes(8, "little") + b"{}"), "header has 4398046511104 bytes"),
    "a tensor of 4 TiB": (same_tensors(lambda text: text.replace(b"[3,2,3,3]", b"[1099511627776,1]")), "cannot load"),
    "a negative shape": (same_tensors(lambda text: text.replace(b"[3,2,3,3]", b"[-3,-2,3,3]")), "cannot load"),
    "offsets beyond": (
        same_tensors(lambda text: text.replace(b'"data_offsets":[0,', b'"data_offsets":[8,')),
        "cannot load",
    ),
    "a name twice": (
        same_tensors(lambda text: text[:-1] + b"," + text[1:]),
        "stands there twice",
    ),
    "a type of its own": (same_tensors(lambda text: text.replace(b'"F32"', b'"F31"', 1)), "cannot load"),
    "another shape of as many": (same_tensors(lambda text: text.replace(b"[3,2,3,3]", b"[2,3,3,3]")), "0.weight is"),
    "another type of as many": (same_tensors(lambda text: text.replace(b'"F32"', b'"I32"', 1)), "wanted float32"),
}
NAMES = ["../../x", "/etc/passwd", "0.weight\x00", "a" * 70_000, "\u202e", "", "__class__"]
MODEL = {
    "missing": (retensor("weights", lambda arrays: arrays.pop("0.weight")), "missing 0.weight"),
    "unexpected": (retensor("weights", lambda arrays: arrays.update({"9.x": np.zeros(2)})), "unexpected 9.x"),
    "shape": (
        retensor("weights", lambda arrays: arrays.update({"0.bias": np.zeros(4, np.float32)})),
        "0.bias is float32 [4], wanted float32 [3]",
    ),
    "type": (retensor("weights", lambda arrays: arrays.update({"0.bias": np.zeros(3)})), "0.bias is float64 [3]"),
    "all of it": (
        retensor("weights", lambda arrays: arrays.clear()),
        "missing 0.weight, 0.bias, 1.weight, 1.bias, 1.running_mean, 1.running_var, 1.num_batches_tracked, 4.weight",
    ),
    "larger than it says": (
        retensor("weights", lambda arrays: arrays.update({"0.bias": np.zeros((1 << 10, 3), np.float32)})),
        "0.bias is float32 [1024, 3]",
    ),
    **{
        f"name {number}": (
            retensor("weights", lambda arrays, name=name: arrays.update({name: arrays.pop("0.weight")})),
            "missing 0.weight",
        )
        for number, name in enumerate(NAMES)
    },
}


def several(folder):
    retensor("weights", lambda arrays: [arrays.pop("4.bias"), arrays.update({"0.bias": np.zeros(9)})])(folder)
    put("optimizer", "param_groups", 0, "betas", [0.9, 7])(folder)
    put("optimizer", "state", "1", "step", "x")(folder)
    put("schedule", "base_lrs", [0.1, 0.2])(folder)
    put("scaler", "scale", -1)(folder)
    put("loader", "position", -3)(folder)
    put("history", "steps", "x")(folder)
    put("generator", "step", -1)(folder)


PARTS = {
    "no optimizer": (put("optimizer", put), "it holds no optimizer; unexpected tensors"),
    "no schedule": (put("schedule", put), "it holds no schedule"),
    "no scaler": (put("scaler", put), "it holds no scaler"),
    "no generator": (put("generator", put), "it holds no generator"),
    "optimizer a list": (put("optimizer", []), "cannot load"),
    "schedule a number": (put("schedule", 3), "CosineAnnealingLR.load_state_dict: got 3"),
    "other optimizer": (put("optimizer_kind", "SGD"), "optimizer is SGD, this one Adam"),
    "groups": (
        lambda folder: edit(folder, lambda i: i["optimizer"]["param_groups"].append({"params": []})),
        "wanted groups",
    ),
    "state of nothing": (put("optimizer", "state", "99", {"step": 1}), "state of parameter 99, which is in no group"),
    "state a text": (put("optimizer", "state", "0", "x"), "unexpected tensors"),
    "rate a text": (put("optimizer", "param_groups", 0, "lr", "0.1"), "lr is '0.1', wanted a number"),
    "rate NaN": (put("optimizer", "param_groups", 0, "lr", {"float": "nan"}), "lr is nan, wanted at least 0"),
    "betas": (put("optimizer", "param_groups", 0, "betas", [0.9]), "betas is (0.9,), wanted a pair"),
    "a moment lacks": (
        retensor("training", lambda arrays: arrays.pop("optimizer.state.0.exp_avg")),
        "no field 'optimizer.state.0.exp_avg'",
    ),
    "a moment nowhere": (
        put("optimizer", "state", "0", "exp_avg", put),
        "unexpected tensors 'optimizer.state.0.exp_avg'",
    ),
    "a moment too many": (put("optimizer", "state", "0", "exp", 1.5), "state[0] has; 'exp', wanted"),
    "a moment of a shape": (
        retensor("training", lambda arrays: arrays.update({"optimizer.state.0.exp_avg": np.zeros(3, np.float32)})),
        "state[0]['exp_avg'] has shape (3,)",
    ),
    "a moment that nothing names": (
        retensor("training", lambda arrays: arrays.update({"optimizer.state.9.exp_avg": np.zeros(3, np.float32)})),
        "unexpected tensors 'optimizer.state.9.exp_avg'",
    ),
    "training a bomb": (
        retensor("training", lambda arrays: arrays.update({"x": np.zeros(1 << 25, np.uint8)})),
        "training-1.safetensors has 33",
    ),
    "schedule of another": (put("schedule", "gamma", 0.1), "CosineAnnealingLR.load_state_dict: got"),
    "schedule of groups": (put("schedule", "base_lrs", [0.1, 0.1]), "got [0.1, 0.1], wanted [0.01]"),
    "scale": (put("scaler", "scale", 0.0), "scale is 0.0, wanted more than 0"),
    "scale NaN": (put("scaler", "scale", {"float": "nan"}), "scale is nan"),
    "scale a text": (put("scaler", "scale", "x"), "scale"),
    "no scale": (put("scaler", {}), "the state is empty"),
    "position": (put("loader", "position", 99), "position is 99, an epoch has 2 batches"),
    "loader of others": (put("loader", {"seed": 1}), "load_state_dict: state is"),
    "history of texts": (put("history", "rows", [{"loss": "x"}]), HISTORY),
    "history of steps": (put("history", "steps", -1), HISTORY),
    "history running": (put("history", "running", "loss", {"float": "nan"}), HISTORY),
    "history a number": (put("history", 3), HISTORY),
    "generator empty": (put("generator", {}), GENERATOR),
    "generator seed": (put("generator", "seed", -1), GENERATOR),
    "generator step": (put("generator", "step", 1 << 63), GENERATOR),
    "generator words": (put("generator", "words", "key", [1]), GENERATOR),
    "generator floats": (put("generator", "buffer", [0.5] * 4), GENERATOR),
    "generator position": (put("generator", "buffer_pos", 9), GENERATOR),
    "everything": (
        several,
        "0.bias is float64 [9]; missing 4.bias; betas[1] is 7, wanted; got [0.1, 0.2]; scale is -1.0; "
        "position is -3; History: state; set_state: wanted",
    ),
}
FAULTS = DISK | JSON | HEADERS | MODEL | PARTS
