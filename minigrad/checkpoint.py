"""Checkpoints: a folder with a JSON file and the safetensors file that it names.

The tensor file is named by its own SHA-256 and written first, then the JSON file that names it replaces the
old one in one step, then old tensor files go. So at any moment the folder holds one whole checkpoint, the old
or the new, and never parts of both. Nothing in either file is ever executed.

Tensors are named "model.0.weight" or "optimizer.3.exp_avg" and lie in the order of their axes, filters as
(out-channel, in-channel, height, width), whatever their order in memory. Everything else is JSON; where a schedule
has an array, it says {"tensor": its name}.

Source  Hugging Face, "Safetensors: format"; Pillai and others 2014, "All file systems are not created equal"
        (on what makes a replacement durable)
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import MinigradError

from . import device
from .tensor import Tensor

__all__ = ["CheckpointError", "exists", "load", "reason", "save", "write_atomic"]

INDEX = "checkpoint.json"
TENSORS = "tensors-{}.safetensors"
PARTIAL = ".partial-"  # what an interrupted write leaves behind begins with this
FORMAT = "minigrad checkpoint"
VERSION = 1
MAX_INDEX_BYTES = 1 << 26


class CheckpointError(MinigradError, ValueError):
    """A checkpoint that is absent, damaged or of something else."""


def save(folder, model, optimizer=None, schedule=None, extra=None):
    """Write the state of a model, and of what trains it, into a folder in place of the checkpoint there.

    extra       JSON values of the caller, which load() returns
    Errors      CheckpointError if a file cannot be written or extra is no JSON; an older one then stays
    """
    folder = Path(folder)
    tensors = {f"model.{name}": _array(value) for name, value in model.state_dict().items()}
    index = {"format": FORMAT, "version": VERSION, "extra": extra}
    if optimizer is not None:
        arrays, numbers = _split(optimizer.state_dict())
        index["optimizer"] = {"kind": type(optimizer).__name__, **numbers}
        tensors |= arrays
    if schedule is not None:
        index["schedule"] = _without_arrays(schedule.state_dict(), "schedule", tensors)
    with _failing("save", folder):
        from safetensors.numpy import save as pack

        packed = pack(tensors)
        digest = hashlib.sha256(packed).hexdigest()
        index |= {"tensors": TENSORS.format(digest[:16]), "sha256": digest}
        text = json.dumps(index, indent=1)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / index["tensors"], packed)
        write_atomic(folder / INDEX, text.encode())
        for file in [*folder.glob(TENSORS.format("*")), *folder.glob(PARTIAL + "*")]:
            if file.name != index["tensors"]:
                file.unlink()


def load(folder, model=None, optimizer=None, schedule=None):
    """Give model, optimizer and schedule, those that are not None, the state in a folder; returns `extra`.

    Errors      CheckpointError if the checkpoint is absent, damaged, or does not fit; all are then as before
    """
    folder = Path(folder)
    with _failing("load", folder):
        index, tensors = _read(folder)
    states = []
    with _failing("load", folder):
        for name, target in (("optimizer", optimizer), ("schedule", schedule)):
            if target is not None and name not in index:
                raise ValueError(f"it holds no {name}")
        if optimizer is not None:
            kind, wanted = index["optimizer"]["kind"], type(optimizer).__name__
            if kind != wanted:
                raise ValueError(f"its optimizer is {kind}, this one {wanted}")
            states.append((optimizer, _joined(index["optimizer"], tensors)))
        if schedule is not None:
            states.append((schedule, _with_arrays(index["schedule"], tensors)))
        if model is not None:
            states.append((model, _model_state(tensors, model)))
    before = [(target, _copied(target.state_dict())) for target, _ in states]
    with _failing("load", folder):
        try:
            for target, state in states:
                target.load_state_dict(state)
        except BaseException:
            for target, state in before:
                target.load_state_dict(state)
            raise
    return index["extra"]


def exists(folder):
    """Whether a folder holds a checkpoint; it may still be damaged."""
    return (Path(folder) / INDEX).is_file()


def write_atomic(path, content):
    """Put bytes into a file so that it holds the old or the new ones at any moment, even without power."""
    path = Path(path)
    partial = path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder):
    """Make the names in a folder durable, where the operating system lets folders be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _failing(action, folder):
    """Turn whatever is wrong with a checkpoint into one CheckpointError."""
    from safetensors import SafetensorError

    wrong = (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    )
    try:
        yield
    except CheckpointError:
        raise
    except (*wrong, MinigradError, SafetensorError, MemoryError) as error:
        raise CheckpointError(f"checkpoint: cannot {action} {folder}: {reason(error)}") from error


def reason(error):
    """What an error met in a file says, in words."""
    return f"no field {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


# ---- reading ------------------------------------------------------------------------------------------


def _read(folder):
    """The index and the tensors, verified."""
    from safetensors.numpy import load as unpack

    path = folder / INDEX
    if not path.is_file():
        raise CheckpointError(f"checkpoint: {path} is not there: the folder holds no checkpoint")
    if path.stat().st_size > MAX_INDEX_BYTES:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, want at most {MAX_INDEX_BYTES}")
    index = json.loads(path.read_bytes())
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise ValueError(f"{path.name} is not the index of a {FORMAT}")
    if index["version"] != VERSION:
        raise ValueError(f"its version is {index['version']}, this release reads version {VERSION}")
    name = index["tensors"]
    if name != TENSORS.format(index["sha256"][:16]) or Path(name).name != name:
        raise ValueError(f"{path.name} names {name!r} as its tensors")
    packed = (folder / name).read_bytes()
    digest = hashlib.sha256(packed).hexdigest()
    if digest != index["sha256"]:
        raise ValueError(f"{name} is damaged: its SHA-256 is {digest}, want {index['sha256']}")
    if "extra" not in index:
        raise ValueError(f"{path.name} has no field 'extra'")
    return index, unpack(packed)


def _model_state(tensors, model):
    """The state of the model, in its element types; load_state_dict checks names and shapes."""
    wanted = model.state_dict()
    state = {name.removeprefix("model."): array for name, array in tensors.items() if name.startswith("model.")}
    for name, array in state.items():
        if name in wanted and _array(wanted[name]).dtype != array.dtype:
            raise ValueError(f"{name} has elements {array.dtype}, the model's has {_array(wanted[name]).dtype}")
    return {name: Tensor(array) for name, array in state.items()}


# ---- optimisers: {"state": {parameter: {name: array or number}}, "param_groups": [...]} --------------


def _split(state):
    """The arrays of an optimiser's state by name, and the rest as JSON values."""
    arrays, numbers = {}, {}
    for parameter, entries in state["state"].items():
        kept = numbers[str(parameter)] = {}
        for name, value in entries.items():
            if isinstance(value, Tensor | np.ndarray):
                arrays[f"optimizer.{parameter}.{name}"] = _array(value)
            else:
                kept[name] = value
    return arrays, {"state": numbers, "param_groups": state["param_groups"]}


def _joined(saved, tensors):
    """What _split took apart."""
    state = {int(parameter): dict(entries) for parameter, entries in saved["state"].items()}
    for name, array in tensors.items():
        kind, parameter, entry = [*name.split(".", 2), "", ""][:3]
        if kind == "optimizer":
            state[int(parameter)][entry] = array
    return {"state": state, "param_groups": saved["param_groups"]}


# ---- schedules: dictionaries in dictionaries, of JSON values and arrays ------------------------------


def _without_arrays(state, name, tensors):
    """The state with the name of each array in its place, under which it is put into tensors."""
    if isinstance(state, dict):
        return {key: _without_arrays(value, f"{name}.{key}", tensors) for key, value in state.items()}
    if not isinstance(state, np.ndarray):
        return state
    tensors[name] = _array(state)
    return {"tensor": name}


def _with_arrays(saved, tensors):
    """The state that _without_arrays took apart."""
    if not isinstance(saved, dict):
        return saved
    if saved.keys() == {"tensor"} and isinstance(saved["tensor"], str):
        return tensors[saved["tensor"]]
    return {key: _with_arrays(value, tensors) for key, value in saved.items()}


# ---- values -------------------------------------------------------------------------------------------


def _array(value):
    """The elements of a Tensor or an array as a NumPy array in C order."""
    return np.asarray(device.host(value.data if isinstance(value, Tensor) else value), order="C")


def _copied(state):
    """A state whose arrays no longer change with what they came from."""
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copied(value) for value in state)
    if isinstance(state, Tensor):
        return Tensor(device.copy(state.data))
    return device.copy(state) if device.is_array(state) else state
