"""What is refused, and in which words: a file a family, each with a list REFUSALS of rows, made by `row`.

A file may also have SETTING, a context manager within which its calls run.
"""

import re
from functools import partial

import numpy as np

from minigrad import Tensor, nn
from minigrad.core.errors import MinigradError

__all__ = ["check", "row"]


def row(error, pattern, function, *args, **options):
    """A call that must fail: the built-in class of the error, a regular expression found in its message."""
    return partial(function, *args, **options), error, pattern


def check(call, error, pattern):
    """Assert that a row is refused as it says, by a MinigradError, and that its inputs stay as they were."""
    looks = [list(_seen((call.func, call.args, call.keywords)))]
    try:
        found = call()
    except MinigradError as caught:
        assert isinstance(caught, error), f"{type(caught).__mro__} is no {error.__name__}: {caught}"
        assert re.search(pattern, str(caught)), f"{str(caught)!r} does not have {pattern!r}"
    else:
        raise AssertionError(f"gave {found!r}, and no {error.__name__}")
    looks.append(list(_seen((call.func, call.args, call.keywords))))
    assert looks[0] == looks[1], "an input is another after it was refused"


def _seen(value):
    """What can be seen of every array, Tensor and object with a state in a value."""
    value = getattr(value, "__self__", value)
    if isinstance(value, Tensor):
        yield np.array(value.detach().cpu().array).tobytes(), value.requires_grad, list(value.version)
        yield from _seen(value.grad)
    elif isinstance(value, np.ndarray):
        yield value.tolist() if value.dtype.hasobject else np.asarray(value).tobytes()
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _seen(one)
    elif isinstance(value, nn.Module) or hasattr(value, "state_dict") and not isinstance(value, type):
        yield repr(value)
        yield from _seen(dict(value.state_dict()))
