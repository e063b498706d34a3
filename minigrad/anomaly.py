"""Anomaly mode: find the operation that made the first NaN.

A NaN spreads to everything computed from it, so the place where it shows is seldom the place where it was born.
Inside `detect_anomaly()` each recorded result and each gradient is looked at as it is made.
"""

import sys
from pathlib import Path

from minigrad_kernels.errors import StateError

from . import device
from .flags import flag_of
from .modes import Mode

__all__ = ["AnomalyError", "anomaly", "check_gradient", "check_results", "detect_anomaly", "origin"]

anomaly = Mode("anomaly", False)
_HERE = str(Path(__file__).parent)


class AnomalyError(StateError):
    """A NaN where there was none before."""


def detect_anomaly(mode=True):
    """Look for NaN in every recorded result and gradient inside; a with block or a decorator. Slow.

    Errors  AnomalyError, a RuntimeError, that names the operation, the ranges of its arguments, and the line of the
            user's program that applied it
    """
    return anomaly.setting(flag_of("detect_anomaly", "mode", mode))


def origin():
    """The innermost line outside of this package: file, line number, function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


@device.there
def _has_nan(array):
    return device.is_floating(array.dtype) and bool(device.array_module(array).isnan(array).any())


def _ranges(names, arguments):
    """What is known of the arguments that are arrays."""
    said = []
    for name, array in zip(names, arguments, strict=True):
        if device.is_array(array) and array.size and array.dtype.kind == "f":
            array = device.host(array)
            said.append(f"{name} {array.shape} from {array.min():.4g} to {array.max():.4g}")
    return "; ".join(said)


def check_results(op, names, arguments, results, place):
    """Refuse a result with NaN whose arguments have none."""
    if any(map(_has_nan, results)) and not any(device.is_array(a) and _has_nan(a) for a in arguments):
        raise AnomalyError(
            f"{op}: the result has NaN, the arguments have none: {_ranges(names, arguments)}; at {place}"
        )


def check_gradient(op, argument, gradient, incoming, place):
    """Refuse a gradient with NaN that came from gradients without."""
    if _has_nan(gradient.data) and not any(g is not None and _has_nan(g.data) for g in incoming):
        raise AnomalyError(
            f"{op}: the gradient of {argument} has NaN, the one it came from has none; applied at {place}"
        )
