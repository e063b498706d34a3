"""The matrix product in each type, rung by rung, beside cuBLAS through PyTorch on the same GPU."""

from functools import partial

import cupy

from minigrad_kernels import matmul
from minigrad_kernels.matmul import cuda as ladder

from .kinds import checked, in_torch, measured, timed
from .small import runs_on

SIZES = (256, 512, 1024, 2048, 4096, 8192)
LAYOUTS = {"NN": (False, False), "NT": (False, True), "TN": (True, False)}
SHAPES = [  # M, N, K of small networks: the head of a CNN, its weight gradient, a 1x1 convolution, its weight gradient
    (64, 10, 512),
    (10, 512, 64),
    (64 * 28 * 28, 32, 16),
    (32, 16, 64 * 28 * 28),
]
SLOW = {"plain": 1024, "tiled": 2048}  # the largest size at which a rung is worth the time
RUNGS_UP_TO = 4096  # beyond it the default rung alone is measured
ROWS = 64  # of the result that are compared with float64


def _operands(kind, m, n, k, transposed):
    a, b = (
        kind.random(*(shape[::-1] if turned else shape))
        for shape, turned in zip(((m, k), (k, n)), transposed, strict=True)
    )
    return (a.T if transposed[0] else a), (b.T if transposed[1] else b)


def _cublas(a, b, out):
    """The call of PyTorch that writes a @ b to out."""
    import torch

    return partial(torch.matmul, in_torch(a), in_torch(b), out=in_torch(out))


def _ours(a, b, out):
    """{rung: call}; "default" is what the launcher chooses."""
    space = cupy.empty(matmul.workspace(a, b), cupy.uint8)
    calls = {"default": partial(matmul.forward, a, b, None, False, out, space)}
    size = max(*a.shape, *b.shape)
    if size <= RUNGS_UP_TO:
        for rung in ladder.rungs_of(a):
            if size <= SLOW.get(rung, RUNGS_UP_TO) and runs_on("cuda", rung):
                calls[rung] = partial(ladder.forward, a, b, None, False, out, space, rung)
    return calls


def _rows(kind, wrong, m, n, k, layout):
    a, b = _operands(kind, m, n, k, LAYOUTS[layout])
    out, case = cupy.empty((m, n), kind.dtype), dict(kind=kind.name, m=m, n=n, k=k, layout=layout)
    exact = cupy.matmul(a[:ROWS].astype(cupy.float64), b.astype(cupy.float64))
    off = lambda: float(cupy.linalg.norm(out[:ROWS].astype(cupy.float64) - exact) / cupy.linalg.norm(exact))
    calls = checked(case, _ours(a, b, out), out, off, kind.worst, wrong)
    yield from timed(case, calls, {"cublas": _cublas(a, b, out)}, "cublas", m * n * k, 0.1)


def run(found):
    cases = [(size, size, size, layout) for size in SIZES for layout in LAYOUTS if layout == "NN" or size == 4096]
    measured(found, cases + [(*shape, "NN") for shape in SHAPES], _rows)
