"""The state of what trains, as arrays with names and JSON values, and back."""

import hashlib
import math
import os
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import KindError

from .. import device
from ..core.tensor import Tensor
from ..device.random import Generator

__all__ = [
    "array_of",
    "check_parts",
    "checked_path",
    "copied",
    "decoded",
    "described",
    "encoded",
    "give",
    "misfits",
    "state_of",
    "weights_hash",
]

MARKS = {"tensor", "float", "dict"}
NOT_FINITE = {"nan", "inf", "-inf"}


# ---- values: dictionaries and lists, in each other, of JSON values, arrays and numbers that are not finite ---------


def encoded(value, name, tensors):
    """The value as JSON has it, with {"tensor": name} for each array, which is put into tensors under that name.

    {"float": "inf"} stands for what JSON has no number for, {"dict": ...} around what looks like one of these three.
    Without tensors, None, arrays stay as they are.
    """
    if isinstance(value, dict):
        fields = {key: encoded(entry, f"{name}.{key}", tensors) for key, entry in value.items()}
        return {"dict": fields} if len(fields) == 1 and fields.keys() <= MARKS else fields
    if isinstance(value, list | tuple):
        return [encoded(entry, f"{name}.{index}", tensors) for index, entry in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    if tensors is None or not isinstance(value, Tensor | np.ndarray):
        return value
    while name in tensors:  # "a.b" may be one name or two
        name += "_"
    tensors[name] = array_of(value)
    return {"tensor": name}


def decoded(value, tensors):
    """The value that was encoded; the tensors that it names are taken out of `tensors`."""
    if isinstance(value, list):
        return [decoded(entry, tensors) for entry in value]
    if not isinstance(value, dict):
        return value
    if len(value) > 1 or not value.keys() & MARKS:
        return {key: decoded(entry, tensors) for key, entry in value.items()}
    ((mark, content),) = value.items()
    if mark == "dict" and isinstance(content, dict):
        return {key: decoded(entry, tensors) for key, entry in content.items()}
    if mark == "tensor" and isinstance(content, str):
        return tensors.pop(content)
    if mark == "float" and content in NOT_FINITE:
        return float(content)
    raise ValueError(f"{value!r} stands there for a value")


# ---- parts --------------------------------------------------------------------------------------------------------


def checked_path(op, folder):
    """The folder as a Path."""
    if not isinstance(folder, str | os.PathLike):
        raise KindError(f"checkpoint.{op}: folder is {folder!r}, wanted the path of a folder")
    return Path(folder)


def check_parts(op, parts):
    """Refuse what has no state, of {name: part}."""
    for name, part in parts.items():
        if not isinstance(part, Generator) and not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            hint = "wanted what has state_dict and load_state_dict"
            raise KindError(f"checkpoint.{op}: {name} is {part!r}, {hint}")


def state_of(part):
    return part.get_state() if isinstance(part, Generator) else part.state_dict()


def give(part, state):
    part.set_state(state) if isinstance(part, Generator) else part.load_state_dict(state)


# ---- arrays -------------------------------------------------------------------------------------------------------


def described(tensors):
    """{name: element type and shape, in words}."""
    return {name: f"{array.dtype} {list(array.shape)}" for name, array in tensors.items()}


def misfits(stored, wanted):
    """Every name that is missing, unexpected, or of another type or shape in what an index says, in words."""
    faults = [
        f"{name} is {stored[name]!s:.60}, wanted {wanted[name]}"
        for name in wanted
        if name in stored and stored[name] != wanted[name]
    ]
    missing = [name for name in wanted if name not in stored]
    unexpected = [repr(name)[1:-1][:200] for name in stored if name not in wanted]
    faults += [f"missing {', '.join(missing)}"] * bool(missing)
    return faults + [f"unexpected {', '.join(unexpected)}"] * bool(unexpected)


def array_of(value):
    """The elements of a Tensor or an array as a NumPy array in C order."""
    return np.asarray(device.host(value.array if isinstance(value, Tensor) else value), order="C")


def copied(state):
    """A state whose arrays no longer change with what they came from."""
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copied(value) for value in state)
    if isinstance(state, Tensor):
        return Tensor(device.copy(state.array))
    return device.copy(state) if device.is_array(state) else state


def weights_hash(model):
    """SHA-256 over the names, shapes, types and elements (in C order) of all parameters and persistent buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        array = array_of(tensor)
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()
