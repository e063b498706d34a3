"""The state of what trains, as arrays with names and JSON values, and back."""

import numpy as np

from .. import device
from ..tensor import Tensor

__all__ = ["array_of", "copied", "joined", "model_state", "split", "with_arrays", "without_arrays"]


def model_state(tensors, model):
    """The state of the model, in its element types; load_state_dict checks names and shapes."""
    wanted = model.state_dict()
    state = {name.removeprefix("model."): array for name, array in tensors.items() if name.startswith("model.")}
    for name, array in state.items():
        if name in wanted and array_of(wanted[name]).dtype != array.dtype:
            raise ValueError(f"{name} has elements {array.dtype}, the model's has {array_of(wanted[name]).dtype}")
    return {name: Tensor(array) for name, array in state.items()}


# ---- optimisers: {"state": {parameter: {name: array or number}}, "param_groups": [...]} --------------


def split(state):
    """The arrays of an optimiser's state by name, and the rest as JSON values."""
    arrays, numbers = {}, {}
    for parameter, entries in state["state"].items():
        kept = numbers[str(parameter)] = {}
        for name, value in entries.items():
            if isinstance(value, Tensor | np.ndarray):
                arrays[f"optimizer.{parameter}.{name}"] = array_of(value)
            else:
                kept[name] = value
    return arrays, {"state": numbers, "param_groups": state["param_groups"]}


def joined(saved, tensors):
    """What split took apart."""
    state = {int(parameter): dict(entries) for parameter, entries in saved["state"].items()}
    for name, array in tensors.items():
        kind, parameter, entry = [*name.split(".", 2), "", ""][:3]
        if kind == "optimizer":
            state[int(parameter)][entry] = array
    return {"state": state, "param_groups": saved["param_groups"]}


# ---- schedules: dictionaries in dictionaries, of JSON values and arrays ------------------------------


def without_arrays(state, name, tensors):
    """The state with the name of each array in its place, under which it is put into tensors."""
    if isinstance(state, dict):
        return {key: without_arrays(value, f"{name}.{key}", tensors) for key, value in state.items()}
    if not isinstance(state, np.ndarray):
        return state
    tensors[name] = array_of(state)
    return {"tensor": name}


def with_arrays(saved, tensors):
    """The state that without_arrays took apart."""
    if not isinstance(saved, dict):
        return saved
    if saved.keys() == {"tensor"} and isinstance(saved["tensor"], str):
        return tensors[saved["tensor"]]
    return {key: with_arrays(value, tensors) for key, value in saved.items()}


# ---- values -------------------------------------------------------------------------------------------


def array_of(value):
    """The elements of a Tensor or an array as a NumPy array in C order."""
    return np.asarray(device.host(value.data if isinstance(value, Tensor) else value), order="C")


def copied(state):
    """A state whose arrays no longer change with what they came from."""
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copied(value) for value in state)
    if isinstance(state, Tensor):
        return Tensor(device.copy(state.data))
    return device.copy(state) if device.is_array(state) else state
