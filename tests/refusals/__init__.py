"""What is refused, and in which words: a file a family, each with a list REFUSALS of rows (name, call, error, pattern).

name        one of its kind in the file, and it begins with the public name that refuses: "Linear: features"
call        called without arguments. A functools.partial shows what it is given: its function (a bound method or a
            Module) and its arguments, which must be unchanged afterwards
error       the built-in class of the error, which is a MinigradError too
pattern     a regular expression that is found in the message

A file may also have SETTING, a context manager within which its calls run, such as two GPUs of the stand-in.
"""

import contextlib
import functools
import importlib
import pkgutil
import re

import numpy as np

from minigrad import Tensor, nn
from minigrad.core.errors import MinigradError

__all__ = ["check", "described", "families", "setting"]


@functools.cache
def _modules():
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def families():
    """The rows of each file, by its name."""
    return {name: module.REFUSALS for name, module in _modules().items()}


def setting(family):
    """Within what the calls of a family run, as a new context manager."""
    return getattr(_modules()[family], "SETTING", contextlib.nullcontext)()


def check(row):
    """Assert that a row is refused as it says and its inputs stay as they were; gives how many inputs were seen."""
    _, call, error, pattern = row
    before = _looks(call)
    message = _message(call, error)
    assert re.search(pattern, message), f"{message!r} does not have {pattern!r}"
    for (what, old), (_, new) in zip(before, _looks(call), strict=True):
        assert old == new, f"{what} is another after it was refused"
    return len(before)


def _message(call, error):
    try:
        found = call()
    except MinigradError as caught:
        assert isinstance(caught, error), f"{type(caught).__mro__} is no {error.__name__}: {caught}"
        return str(caught)
    raise AssertionError(f"gave {found!r}, and no {error.__name__}")


def _looks(call):
    """What can be seen of the inputs of a call: pairs of what it is and its state."""
    if not isinstance(call, functools.partial):
        return []
    return [look for value in (call.func, call.args, call.keywords) for look in _seen(value)]


def _seen(value):
    """Every array, Tensor, and object with a state in a value."""
    value = getattr(value, "__self__", value)
    if isinstance(value, Tensor):
        yield "a Tensor", (_bits(value.array), value.requires_grad, list(value.version))
        yield from _seen(value.grad)
    elif isinstance(value, np.ndarray | np.generic):
        yield "an array", _bits(value)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _seen(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _seen(one)
    elif isinstance(value, nn.Module):
        yield "a Module", (repr(value), value.training)
        for one in (*value.parameters(), *value.buffers()):
            yield from _seen(one)
    elif hasattr(value, "state_dict") and not isinstance(value, type):
        yield f"a {type(value).__name__}", repr(value.state_dict())
        yield from _seen(value.state_dict())


def _bits(array):
    """Where an array lies, of what type and shape it is, and its elements."""
    array = array.get() if hasattr(array, "get") else np.asarray(array)  # a GPU's, a masked one
    once = array[tuple(slice(1) if stride == 0 else slice(None) for stride in array.strides)]  # an element repeated
    content = array.tolist() if array.dtype.hasobject else once.tobytes()
    return array.shape, array.strides, array.dtype.str, content


def described(*args, **options):
    """Arguments in a name: shapes instead of elements."""
    return ", ".join([*map(_described, args), *(f"{name}={_described(value)}" for name, value in options.items())])


def _described(value):
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_described, value))}]"
    shape = getattr(value, "shape", None)
    return " ".join(repr(value).split())[:40] if shape is None else f"{type(value).__name__}{shape}"
