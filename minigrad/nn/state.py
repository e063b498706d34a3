"""The state of a Module: all parameters and persistent buffers by name, under PyTorch's names."""

from collections import OrderedDict, namedtuple
from collections.abc import Mapping

import numpy as np

from minigrad_kernels.errors import KindError, MinigradError, ShapeError

from .. import device
from ..core.tape import write
from ..core.tensor import Tensor

__all__ = ["load_state_dict", "state_dict"]

IncompatibleKeys = namedtuple("IncompatibleKeys", ("missing_keys", "unexpected_keys"))


def state_dict(self, prefix=""):
    """An OrderedDict from names to Tensors without history that share the memory of this Module.

    prefix  what all names begin with, such as "encoder."
    A shared parameter stands under each of its names. numpy.asarray(tensor) is an array of the logical shape.
    """
    state = OrderedDict()
    for path, module in self.named_modules(remove_duplicate=False):
        for registry in (module._parameters, module._buffers):
            for name, tensor in registry.items():
                if tensor is not None and not (registry is module._buffers and name in module._non_persistent):
                    state[prefix + (f"{path}.{name}" if path else name)] = tensor.detach()
    return state


def load_state_dict(self, state_dict, strict=True):
    """Copy Tensors or arrays into the parameters and buffers of these names, in the type that they have here.

    strict  refuse names that are missing or unexpected
    Returns (missing_keys, unexpected_keys).
    Errors  one ValueError that lists every name that is missing, unexpected, of another shape, or not made of
            numbers, TypeError for what is no dictionary; nothing is changed then
    """
    if not isinstance(state_dict, Mapping):
        kind = type(state_dict).__name__
        raise KindError(f"load_state_dict: state_dict is a {kind}, wanted a dictionary from names to Tensors")
    own = self.state_dict()
    missing = [name for name in own if name not in state_dict]
    unexpected = [name for name in state_dict if name not in own]
    arrays, faults = {}, []
    for name in own.keys() & state_dict.keys():
        given = state_dict[name]
        try:
            arrays[name] = given.array if isinstance(given, Tensor) else _array(given)
        except (MinigradError, ValueError, TypeError, RuntimeError):
            faults.append(f"{name} is a {type(given).__name__} that is no array of numbers")
            continue
        if arrays[name].shape != own[name].shape:
            faults.append(f"{name} has shape {arrays[name].shape}, wanted {own[name].shape}")
    faults.sort()
    if strict:
        faults += [f"missing {', '.join(missing)}"] * bool(missing)
        faults += [f"unexpected {', '.join(map(str, unexpected))}"] * bool(unexpected)
    if faults:
        hint = "" if not strict or not (missing or unexpected) else "; strict=False skips missing and unexpected names"
        raise ShapeError(f"load_state_dict: {type(self).__name__} does not fit: {'; '.join(faults)}{hint}")
    for name, array in arrays.items():
        device.assign(write(own[name]), array)
    return IncompatibleKeys(missing, unexpected)


def _array(given):
    return device.asarray(given if device.is_array(given) else np.asarray(given))
