"""Launchers on arrays of 16 bits, float16 and bfloat16, where there are no kernels for them: float32 and rounded back.

    @widened("a b bias residual", either="out", native=on_cuda)
    def forward(a, b, bias, relu, out, workspace, residual=None):
        ...

Where the first array named has elements of 16 bits, and `native` does not say that there are kernels for such a call,
the launcher is called with float32 copies of all arrays named, and what it wrote is rounded back, once: to nearest,
ties to even. So sums are float32 whatever goes in. Arrays that are not named are float32 beside 16 bits by
contract. Every other call goes straight on.

`forward.widened` widens whatever `native` says: for back ends that have kernels for some shapes alone.
"""

import functools
import inspect

import numpy as np

from ..errors import KindError, ShapeError
from ..layout import in_memory_order
from . import backend

__all__ = ["is_half", "on_cuda", "widened"]

SINGLE = np.dtype(np.float32)


def is_half(dtype):
    """Whether an element type is float16 or bfloat16."""
    return dtype.itemsize == 2 and (dtype.kind == "f" or dtype.name == "bfloat16")


def on_cuda(array, *others):
    """For `native`: there are kernels for every call on a GPU."""
    return backend(array[0] if isinstance(array, list) else array) == "cuda"


def widened(inputs="", outputs="", updated="", either="", native=None):
    """A decorator for launchers.

    inputs, outputs, updated    names of arguments that are read, written, or both: arrays or None; with a star before
                                it, a list of arrays
    either                      outputs that may be float32 beside inputs of 16 bits: they get the results unrounded
    native                      called with the arguments of a call in 16 bits: whether there are kernels for it
    Errors  TypeError for arrays of several types among those named; ValueError for outputs that are read-only
    """
    roles = {name: "r" for name in inputs.split()} | {name: "w" for name in outputs.split()}
    roles |= {name: "rw" for name in updated.split()} | {name: "w?" for name in either.split()}

    def decorated(launcher):
        wide = _Widened(launcher, {name.removeprefix("*"): role for name, role in roles.items()})
        function = functools.update_wrapper(_switch(launcher, wide, "*" in "".join(roles), native), launcher)
        function.widened = wide
        return function

    return decorated


def _switch(launcher, wide, lists, native):
    """A function with the arguments of the launcher that calls it, or for 16 bits what else there is.

    It is compiled from text, once: a function of any arguments would cost each launch more than the look does.
    """
    first = wide.first
    parameters = inspect.signature(launcher).parameters.values()

    def of_two_bytes(*arguments):
        array = arguments[wide.position]
        if is_half(array[0].dtype if lists else array.dtype) and not (native and native(*arguments)):
            return wide(*arguments)
        return launcher(*arguments)

    names = ", ".join(parameter.name for parameter in parameters)
    size = f"{first}[0].itemsize if {first} else 0" if lists else f"{first}.itemsize"
    declared = ", ".join(p.name if p.default is p.empty else f"{p.name}=_{p.name}" for p in parameters)
    namespace = {f"_{p.name}": p.default for p in parameters} | {"_launcher": launcher, "_of_two_bytes": of_two_bytes}
    exec(
        f"def {launcher.__name__}({declared}):\n"
        f"    try:\n        size = {size}\n"
        f"    except (AttributeError, TypeError):\n        size = 0\n"  # no array; the launcher says so
        f"    return _of_two_bytes({names}) if size == 2 else _launcher({names})\n",
        namespace,
    )
    return namespace[launcher.__name__]


def _write(target, array):
    target, array = in_memory_order(target, array)
    target[...] = array


class _Widened:
    """A launcher that is called with float32 copies of arrays, whatever their floating type."""

    def __init__(self, launcher, roles):
        self.launcher, self.roles = launcher, roles
        self.signature = inspect.signature(launcher)
        self.names = list(self.signature.parameters)
        self.first = next((n for n in self.names if "r" in roles.get(n, "")), None) or next(iter(roles))
        self.position = self.names.index(self.first)
        self.op = f"{launcher.__module__.rpartition('.')[2]}.{launcher.__name__}"

    def __call__(self, *arguments, **named):
        arguments = self.signature.bind(*arguments, **named).arguments
        first = arguments[self.first]
        dtype, results = (first[0] if isinstance(first, list) else first).dtype, []
        with np.errstate(all="ignore"):  # what is too large for float16 becomes infinite, without a warning
            for name, role in self.roles.items():
                if name in arguments:
                    arguments[name] = self._wide(name, arguments[name], role, dtype, results)
            space = arguments.get("workspace")
            if space is not None and not callable(space):  # it may be too small for float32
                arguments["workspace"] = lambda nbytes, like: np.empty_like(like, np.uint8, shape=(nbytes,))
            self.launcher(**arguments)
            for array, result in results:
                _write(array, result)

    def _wide(self, name, array, role, dtype, results):
        """A float32 copy of an array, or of a list of them; results: pairs of what is written and its copy."""
        if isinstance(array, list):
            return [self._wide(f"{name}[{k}]", one, role, dtype, results) for k, one in enumerate(array)]
        found = getattr(array, "dtype", None)
        if found is None or (role == "w?" and found == SINGLE):
            return array
        if found != dtype:
            raise KindError(f"{self.op}: {name} has type {found}, {self.first} {dtype}; wants one type")
        if "w" in role and not getattr(array.flags, "writeable", True):  # arrays of CuPy always are
            raise ShapeError(f"{self.op}: {name} is read-only, wants an array to write to")
        copy = np.empty_like(array, SINGLE)
        if "r" in role:
            _write(copy, array)
        if "w" in role:
            results.append((array, copy))
        return copy
