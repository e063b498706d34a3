"""Every CUDA kernel of the package once or a few times at small sizes: what compute-sanitizer looks at.

python -m tests.gpu.small runs it on the device that MINIGRAD_TEST_DEVICE names.
"""

import importlib
import itertools
from functools import partial

import numpy as np

from minigrad_kernels.matmul import cuda as ladder
from minigrad_kernels.optimizer import cuda as optimizer_cuda

from ..cases.matmul import row, transposed
from ..kernel_runs import CASES, DEVICE, exists, make_inputs, moved, run

__all__ = ["run_all"]

LARGEST, EACH = 5000, 4  # elements of all inputs together; rows for each function


def _rows():
    """(row, module of its CUDA kernels) of some rows for each function that has any, the larger ones first."""
    known = sorted((case for case in CASES if exists(case, ".cuda") and case.family != "matmul"), key=_function)
    for (family, _), rows in itertools.groupby(known, _function):
        sizes = [(sum(np.prod(shape) for shape in case.shapes if shape), case) for case in rows]
        small = sorted((pair for pair in sizes if pair[0] < LARGEST), key=lambda pair: -pair[0])
        for _, case in small[:EACH]:
            yield case, importlib.import_module(f"minigrad_kernels.{family}.cuda")


def _function(case):
    return case.family, case.function


def _products():
    """Every rung of the matrix product in every layout."""
    for rung, layouts in itertools.product(ladder.RUNGS, itertools.product((None, transposed), repeat=2)):
        sizes = (8, 1000, 12) if rung == "split" else (20, 36, 24)
        yield rung, row(*sizes, bias=True, layouts=layouts, relu=True)


def _adam(device, dtype, rung):
    rng, hyper = np.random.default_rng(0), np.array([1e-3, 0.9, 0.999, 1e-8, 0.01, 3, 1, 0])
    shapes = [(5,), (7, 9), (3, 3, 2, 4)]
    lists = [[moved(rng.uniform(1, 2, shape).astype(dtype), device) for shape in shapes] for _ in range(5)]
    optimizer_cuda.adam(*optimizer_cuda.tables(lists)[:2], True, hyper, lists[0][0], rung)


def run_all(device=DEVICE):
    for case, module in _rows():
        for dtype in (np.float32, np.float64):
            run(case, dtype, make_inputs(case, dtype), device)
        if len(case.shapes[0]) == 2:  # as the launcher hands it on
            plain = partial(getattr(module, case.function), rung="plain")
            run(case, np.float32, make_inputs(case, np.float32), device, plain)
    for rung, case in _products():
        run(case, np.float32, make_inputs(case, np.float32), device, partial(ladder.forward, rung=rung))
    case = row(7, 5, 6)
    run(case, np.float64, make_inputs(case, np.float64), device)
    for dtype, rung in ((np.float32, "vector"), (np.float32, "plain"), (np.float64, "plain")):
        _adam(device, dtype, rung)


if __name__ == "__main__":
    run_all()
    print("every kernel was launched")
