"""Arguments and results of a captured function: Tensors in tuples, lists and dictionaries, and other values."""

from minigrad_kernels.errors import KindError

from .. import device
from ..core.tensor import Tensor

__all__ = ["flattened", "mapped"]


def mapped(value, function):
    """A value with each Tensor in it replaced by function(Tensor)."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {name: mapped(part, function) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[mapped(part, function) for part in value])
    if isinstance(value, list | tuple):
        return type(value)([mapped(part, function) for part in value])
    return value


def flattened(args, kwargs):
    """(Tensors of the arguments, what tells calls apart that want a graph each).

    Errors  TypeError for what can be no part of a key, and for Tensors that require a gradient
    """
    tensors, key = [], []
    for number, value in enumerate(args):
        _look(value, f"argument {number}", tensors, key)
    for name, value in kwargs.items():
        key.append(name)
        _look(value, name, tensors, key)
    return tensors, tuple(key)


def _look(value, place, tensors, key):
    """Add what `flattened` gives of one value."""
    if isinstance(value, Tensor):
        if value.requires_grad:
            raise KindError(f"capture: {place} requires a gradient; pass {place}.detach(), or use it from outside")
        array = value.array
        key.append((array.shape, array.dtype.str, device.order_of(array), value.device))
        tensors.append(value)
    elif isinstance(value, dict):
        key.append((type(value), tuple(value)))
        for name, part in value.items():
            _look(part, f"{place}[{name!r}]", tensors, key)
    elif isinstance(value, list | tuple):
        key.append((type(value), len(value)))
        for number, part in enumerate(value):
            _look(part, f"{place}[{number}]", tensors, key)
    else:
        try:
            hash(value)
        except TypeError as error:
            raise KindError(
                f"capture: {place} is a {type(value).__name__}, wanted Tensors, and else what can be a key of a "
                "dictionary: a graph is of one value of it"
            ) from error
        key.append((type(value), value))
