"""Memory-bound kernels beside a device copy."""

import cupy
import numpy as np

from minigrad_kernels import bias, optimizer, softmax
from minigrad_kernels.optimizer import Adam, Plan

from .timing import medians, random, space

ROWS, COLUMNS = 1 << 18, 256  # of the memory-bound kernels: 256 MB a matrix


def _memory_bound():
    """{name: (call, bytes that it has to move)}"""
    x, g = random(ROWS, COLUMNS), random(ROWS, COLUMNS)
    dx, sums = cupy.empty_like(x), cupy.empty(COLUMNS, cupy.float32)
    labels = cupy.asarray(np.random.default_rng(0).integers(0, COLUMNS, ROWS))
    losses, logsumexp, size = cupy.empty(ROWS, cupy.float32), cupy.empty(ROWS, cupy.float32), x.nbytes
    hyper, plan = np.zeros(len(Adam)), Plan()
    hyper[[Adam.RATE, Adam.BETA1, Adam.BETA2, Adam.EPS, Adam.STEP]] = 1e-3, 0.9, 0.999, 1e-8, 1
    state = [cupy.split(part, 64) for part in (x.copy(), g, cupy.zeros(x.shape, x.dtype), cupy.zeros(x.shape, x.dtype))]

    def adam():
        optimizer.adam(*state, None, hyper, plan)
        hyper[Adam.STEP] += 1  # as the device counts it, so that nothing is sent

    return {
        "copy": (lambda: cupy.copyto(dx, x), 2 * size),
        "bias_relu_grad": (lambda: bias.bias_relu_grad(g, x, dx, sums, space), 3 * size),
        "column_sums": (lambda: bias.column_sums(x, sums, space), size),
        "cross_entropy": (
            lambda: softmax.cross_entropy(x, labels, -100, losses, logsumexp),
            size + labels.nbytes + 2 * losses.nbytes,
        ),
        "adam, 64 parameters": (adam, 7 * size),
    }


def kernels(found):
    found["memory_bound"] = rows = []
    calls = _memory_bound()
    times = medians({name: call for name, (call, _) in calls.items()})
    rates = {name: nbytes / times[name][0] / 1e6 for name, (_, nbytes) in calls.items()}
    for name, (milliseconds, spread) in times.items():
        row = dict(kernel=name, ms=round(milliseconds, 5), spread=round(spread, 3), gb_per_s=round(rates[name]))
        rows.append(row | {"of_copy": round(rates[name] / rates["copy"], 3)})
        print(f"  {rows[-1]}", flush=True)
