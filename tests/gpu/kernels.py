"""Rungs of the matrix product beside cuBLAS, memory-bound kernels beside a device copy, and the cost of a launch."""

import cupy
import numpy as np

from minigrad_kernels import bias, matmul, optimizer, softmax
from minigrad_kernels.matmul import cuda as ladder
from minigrad_kernels.matmul import cuda_split
from minigrad_kernels.optimizer import Adam, Plan

from .timing import host_microseconds, medians, random

SIZES = (512, 1024, 2048, 4096)
LAYOUTS = {"NN": (False, False), "NT": (False, True), "TN": (True, False)}
SHAPES = [  # M, N, K of small networks: the head of a CNN, its weight gradient, a 1x1 convolution, its weight gradient
    (64, 10, 512),
    (10, 512, 64),
    (64 * 28 * 28, 32, 16),
    (32, 16, 64 * 28 * 28),
]
SLOW = {"plain": 2048, "tiled": 4096}  # the largest size at which a rung is worth the time
WORST = 1e-5  # relative error of a product, in the norm
ROWS, COLUMNS = 1 << 18, 256  # of the memory-bound kernels: 256 MB a matrix


def _operands(m, n, k, transposed=(False, False)):
    shapes = ((k, m) if transposed[0] else (m, k)), ((n, k) if transposed[1] else (k, n))
    a, b = (random(*shape) for shape in shapes)
    return (a.T if transposed[0] else a), (b.T if transposed[1] else b)


def _products(m, n, k, transposed, wrong):
    """{rung: call} of cuBLAS, and of the default and all rungs that fit and whose results are right."""
    a, b = _operands(m, n, k, transposed)
    out = cupy.empty((m, n), cupy.float32)
    space = cupy.empty(matmul.workspace(a, b), cupy.uint8)
    exact = cupy.matmul(a[:64].astype(cupy.float64), b.astype(cupy.float64))
    calls = {
        "cublas": lambda: cupy.matmul(a, b, out=out),
        "default": lambda: matmul.forward(a, b, None, False, out, space),
    }
    for rung in ladder.RUNGS:
        if max(m, n, k) <= SLOW.get(rung, 1 << 30):
            calls[rung] = lambda rung=rung: ladder.forward(a, b, None, False, out, space, rung)
    found = {}
    for name, call in calls.items():
        out.fill(cupy.nan)
        try:
            call()
        except ValueError as error:  # this rung does not fit
            print(f"  {m}x{n}x{k} {name}: {error}")
            continue
        error = float(cupy.linalg.norm(out[:64] - exact) / cupy.linalg.norm(exact))
        if error < WORST or name == "cublas":
            found[name] = call
        else:
            wrong.append(f"matmul {m}x{n}x{k} {name}: relative error {error}")
    return found


def products(rows, wrong):
    """Adds a row for each contender, and to `wrong` those whose result is not that of float64."""
    cases = [(size, size, size, layout) for size in SIZES for layout in LAYOUTS if layout == "NN" or size == SIZES[-1]]
    cases += [(*shape, "NN") for shape in SHAPES]
    for m, n, k, layout in cases:
        times = medians(_products(m, n, k, LAYOUTS[layout], wrong), budget=0.2)
        base, _ = times["cublas"]
        for name, (milliseconds, spread) in times.items():
            row = dict(m=m, n=n, k=k, layout=layout, rung=name, ms=round(milliseconds, 5), spread=round(spread, 3))
            row["tflops"] = round(2e-9 * m * n * k / milliseconds, 2)
            row["of_cublas"] = round(base / milliseconds, 3)
            rows.append(row)
            print(
                f"  {m}x{n}x{k} {layout} {name:<10} {milliseconds:9.4f} ms  {row['of_cublas']:.2f} of cuBLAS",
                flush=True,
            )


def _memory_bound():
    """{name: (call, bytes that it has to move)}"""
    x, g = random(ROWS, COLUMNS), random(ROWS, COLUMNS)
    dx = cupy.empty_like(x)
    row, sums = cupy.zeros(COLUMNS, cupy.float32), cupy.empty(COLUMNS, cupy.float32)
    space = cupy.empty(bias.workspace(x.shape), cupy.uint8)
    labels = cupy.asarray(np.random.default_rng(0).integers(0, COLUMNS, ROWS))
    losses, size = cupy.empty(ROWS, cupy.float32), x.nbytes
    hyper = np.zeros(len(Adam))
    hyper[[Adam.RATE, Adam.BETA1, Adam.BETA2, Adam.EPS, Adam.STEP]] = 1e-3, 0.9, 0.999, 1e-8, 1
    state = [cupy.split(part, 64) for part in (x.copy(), g, cupy.zeros_like(x), cupy.zeros_like(x))]
    plan = Plan()

    def adam():
        optimizer.adam(*state, None, hyper, plan)
        hyper[Adam.STEP] += 1  # as the device counts it, so that nothing is sent

    return {
        "copy": (lambda: cupy.copyto(dx, x), 2 * size),
        "bias_relu": (lambda: bias.bias_relu(x, row, dx), 2 * size),
        "bias_relu_grad": (lambda: bias.bias_relu_grad(g, x, dx, sums, space), 3 * size),
        "column_sums": (lambda: bias.column_sums(x, sums, space), size),
        "cross_entropy_with_grad": (
            lambda: softmax.cross_entropy_with_grad(x, labels, -100, 1.0, losses, dx),
            2 * size + labels.nbytes + losses.nbytes,
        ),
        "adam, 64 parameters": (adam, 7 * size),
    }


def memory_bound():
    calls = _memory_bound()
    times = medians({name: call for name, (call, _) in calls.items()})
    rates = {name: calls[name][1] / times[name][0] / 1e6 for name in calls}
    rows = []
    for name, (milliseconds, spread) in times.items():
        of_copy = round(rates[name] / rates["copy"], 3)
        rows.append(dict(kernel=name, ms=round(milliseconds, 5), spread=round(spread, 3), gb_per_s=round(rates[name])))
        rows[-1]["of_copy"] = of_copy
        print(f"  {name:<24} {milliseconds:9.4f} ms  {rates[name]:7.0f} GB/s  {of_copy:.2f} of a copy", flush=True)
    return rows


def launches():
    """Host microseconds of a launch: of a kernel itself, and through the launcher of its family with its checks."""
    a = cupy.zeros((16, 16), cupy.float32)
    out, space = cupy.empty_like(a), cupy.empty(0, cupy.uint8)
    row = cupy.zeros(16, cupy.float32)
    block, copied = (cuda_split.WIDTH, cuda_split.HEIGHT), (a, 0, out, out.size, 16, 1, 0, 0)  # of one slice the sums
    calls = {
        "launch": lambda: cuda_split.add((8,), block, copied),
        "matmul.forward": lambda: matmul.forward(a, a, None, False, out, space),
        "bias.bias_relu": lambda: bias.bias_relu(a, row, out),
        "cupy.copyto": lambda: cupy.copyto(out, a),
    }
    found = {name: round(host_microseconds(call), 2) for name, call in calls.items()}
    print(f"  host microseconds: {found}", flush=True)
    return found


def run(found):
    found |= {"products": [], "wrong": []}
    found["host_microseconds"] = launches()
    found["memory_bound"] = memory_bound()
    products(found["products"], found["wrong"])
    print(*found["wrong"], sep="\n", flush=True)
    found["failed"] = bool(found["wrong"])
