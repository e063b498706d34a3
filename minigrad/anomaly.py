"""Anomaly mode: find the operation that made the first NaN.

A NaN spreads to everything computed from it, so the place where it shows is seldom the place where it was born.
Inside `detect_anomaly()` each gradient is looked at as it is made, and each result of a Tensor that requires one.
"""

import functools
import sys
from pathlib import Path

from minigrad_kernels.errors import StateError

from . import device
from .core.check import flag_of
from .core.interceptors import Interceptor, interceptors, proceed
from .core.modes import recording

__all__ = ["AnomalyError", "detect_anomaly", "is_anomaly_enabled", "origin", "outside"]

_HERE = str(Path(__file__).parent)


class AnomalyError(StateError):
    """A NaN where there was none before."""


class detect_anomaly(Interceptor):
    """Look for NaN in every gradient inside, and in every result of a Tensor that requires one. Slow.

    A with block or a decorator; mode=False switches it off inside.

    Errors  AnomalyError, a RuntimeError, that names the operation, the ranges of its arguments (of a gradient: of what
            its rule reads), and the line of the user's program that applied it
    """

    def __init__(self, mode=True):
        self.eager = self.mode = flag_of("detect_anomaly", "mode", mode)

    def apply(self, primitive, values, below):
        """Look at the result, and have the node look at its gradients."""
        below = tuple(one for one in below if not isinstance(one, detect_anomaly))  # the newest decides
        if not (self.mode and recording.get() and _has_history(values)):
            return proceed(below, primitive, values)
        clean = not any(_has_nan(array) for _, array in _arrays((None, value) for value in values))  # it may be written
        result, place = proceed(below, primitive, values), origin()
        results = result if isinstance(result, tuple) else (result,)
        if clean:
            _check_results(primitive, values, results, place)
        for node in {one.node for one in results if one.node is not None}:
            node.observers += (functools.partial(_check_gradient, primitive.name, place),)
        return result


def is_anomaly_enabled():
    """Whether results and gradients are looked at."""
    return next((one.mode for one in reversed(interceptors()) if isinstance(one, detect_anomaly)), False)


def outside():
    """(the innermost frame outside of this package, how many of the package it has called, from the asking one on)."""
    frame, depth = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame, depth = frame.f_back, depth + 1
    return frame, depth


def origin():
    """The innermost line outside of this package: file, line number, function."""
    frame, _ = outside()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


@device.there
def _has_nan(array):
    return device.is_floating(array.dtype) and bool(device.array_module(array).isnan(array).any())


def _has_history(values):
    """Whether one of these values, or of several in one, is a Tensor that requires a gradient."""
    return any(_has_history(v) if isinstance(v, tuple | list) else getattr(v, "requires_grad", False) for v in values)


def _arrays(values):
    """(name, array) of the arrays in pairs of name and value: an array, a Tensor, or several of them."""
    for name, value in values:
        if isinstance(value, tuple | list):
            yield from _arrays((f"{name}[{i}]", one) for i, one in enumerate(value))
        elif device.is_array(array := getattr(value, "_data", value)):
            yield name, array


def _ranges(values):
    """The shape and the range of each floating array among these pairs of name and value."""
    said = []
    for name, array in _arrays(values):
        if array.size and device.is_floating(array.dtype):
            array = device.host(array).astype("float64")
            said.append(f"{name} {array.shape} from {array.min():.4g} to {array.max():.4g}")
    return "; ".join(said)


def _check_results(primitive, values, results, place):
    """Refuse results with NaN of arguments that had none."""
    if any(_has_nan(result.array) for result in results):
        ranges = _ranges(zip(primitive.names, values, strict=True))
        raise AnomalyError(f"{primitive.name}: the result has NaN, the arguments had none: {ranges}; at {place}")


def _check_gradient(op, place, argument, gradient, incoming, kept):
    """Refuse a gradient with NaN that came from gradients without. kept: what the rule read, by name."""
    if _has_nan(gradient.array) and not any(g is not None and _has_nan(g.array) for g in incoming):
        read = [*kept.items(), *(("the gradient that came", g) for g in incoming)]
        raise AnomalyError(
            f"{op}: the gradient of {argument} has NaN, the one it came from has none: {_ranges(read)}; "
            f"applied at {place}"
        )
