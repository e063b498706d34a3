"""What modes of the engine refuse, and what a captured function refuses of its arguments."""

from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, graph


def entered(mode, *args, **options):
    with mode(*args, **options):
        return "a block that ran"


def row(name, error, pattern, function, *args, **options):
    return f"{name}: {pattern}", partial(function, *args, **options), error, pattern


def flags():
    for name, wanted in (("deterministic", "wanted"), ("detect_anomaly", "wanted"), ("tf32", "wants")):
        for wrong in ("on", 2, None, np.ones(2)):
            words = rf"{name}: mode is .*, {wanted} True or False"
            yield row(name, TypeError, words, entered, getattr(minigrad, name), wrong)
    for wrong in ("sometimes", 1, None, np.ones(2)):
        yield row("winograd", ValueError, "winograd: mode is .*'always'", entered, minigrad.winograd, wrong)


def autocast():
    for wrong in ("float32", "int16", "half", "", np.float64):
        yield row(
            "autocast", TypeError, "autocast: dtype is .*wanted 'float16' or 'bfloat16'", minigrad.autocast, wrong
        )
    hint = "the type comes first: devices need no naming"
    yield row("autocast", TypeError, f"autocast: dtype is 'cuda', wanted .*{hint}", minigrad.autocast, "cuda")
    yield row("autocast", TypeError, "dtype: got 3|autocast: dtype is 3", minigrad.autocast, 3)
    yield row("autocast", TypeError, "autocast: dtype is None|dtype: got None", minigrad.autocast, None)
    yield row("autocast", TypeError, "autocast: enabled is 'no'", minigrad.autocast, "float16", enabled="no")


def captured():
    x, leaf = Tensor(np.ones(2, np.float32)), Tensor(np.ones(2, np.float32), requires_grad=True)
    step = graph.capture(lambda *args, **options: x)
    yield row("capture", TypeError, "capture: function is 3, wanted a function of Tensors", graph.capture, 3)
    yield row("capture", TypeError, "device is 'gpu', wanted 'cpu'", graph.capture, abs, device="gpu")
    yield row("Captured", TypeError, r"argument 0 requires a gradient; pass argument 0.detach\(\)", step, leaf)
    yield row("Captured", TypeError, r"argument 0\[1\]\['w'\] requires a gradient", step, [x, {"w": leaf}])
    yield row("Captured", TypeError, "capture: argument 1 is a set, wanted Tensors, and else what can", step, x, {1})
    yield row("Captured", TypeError, "capture: rate is a bytearray, wanted Tensors", step, x, rate=bytearray(b"a"))
    yield row("Captured", TypeError, "capture: argument 0 is a ndarray, wanted Tensors", step, np.ones(2))


def devices():
    yield row("memory_statistics", TypeError, "device is 'gpu', wanted 'cpu'", minigrad.memory_statistics, "gpu")
    for wrong in (3, None, np.array(["cpu", "cpu"])):
        yield row("zeros", TypeError, "to: device is .*wanted 'cpu'", minigrad.zeros, 2, device=wrong)
    yield row("cuda.synchronize", TypeError, "device is 1.5", minigrad.cuda.synchronize, 1.5)


REFUSALS = [*flags(), *autocast(), *captured(), *devices()]
