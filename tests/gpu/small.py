"""Every CUDA kernel of the package at small sizes: what compute-sanitizer looks at.

python -m tests.gpu.small DEVICE runs it on "cuda" or on the interpreter.
"""

import contextlib
import importlib
import sys
from functools import partial
from itertools import product
from unittest import mock

import ml_dtypes
import numpy as np

from minigrad_kernels import optimizer
from minigrad_kernels import softmax as losses
from minigrad_kernels.conv2d import cuda as conv2d
from minigrad_kernels.matmul import cuda as ladder
from minigrad_kernels.toolchain.modes import tf32
from tests.kernels.cases import augment, bias, elementwise, norm, pool2d, scatter, softmax
from tests.kernels.cases import conv2d as convolution
from tests.kernels.cases.matmul import row, transposed
from tests.kernels.kernel_runs import make_inputs, moved, part, run, with_halves

__all__ = ["LAST", "run_all", "runs_on"]

LAST = "every kernel was launched on cuda"
HALVES = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)

# ---- families with a plain rung and a higher one, which runs where it fits -------------------------------------------

ALONG = (  # makers of cases whose kernels work along rows, from (rows, columns)
    norm.standardize, norm.standardize_grad, softmax.cross_entropy,
    *(partial(softmax.row, name) for name in ("softmax", "log_softmax", "softmax_grad", "log_softmax_grad")),
)  # fmt: skip
SIZE, PARTS = (1030,), (1100, 8)  # of one vector; of a matrix whose columns are summed in two parts
BOTH = [  # cases that run on either rung, and plain in float64
    *bias.rows(PARTS),
    augment.row((2, 3, 4, 4), 3),
    augment.cut((2, 3, 4, 4), 3, 1, False),
    *(elementwise.row(f"relu{end}", SIZE) for end in ("", "_grad")),
    *(elementwise.leaky(f"leaky_relu{end}", SIZE, 0.1) for end in ("", "_grad")),
    elementwise.row("erf", SIZE),
    elementwise.dropout(SIZE, 0.5),
    *(make(PARTS) for make in (norm.statistics, norm.normalize, norm.grads)),
    *pool2d.maximum((1, 4, 5, 7), (3, 2), (2, 2), (1, 1)),
    *pool2d.maximum((1, 4, 18, 17), (17, 16), (1, 1)),  # more taps than a byte can number
    *pool2d.plain((1, 4, 6, 8), 3, 2, 1),
    scatter.add_rows(7, 3, 4),
    softmax.cross_entropy_grad((3, 8)),
    *(make((3, 12)) for make in ALONG),
]
WIDE = [make((2, columns)) for make, columns in product(ALONG, (128, 4101))]  # rows of a whole warp, and of a block
LADDERS = [
    importlib.import_module(f"minigrad_kernels.{name}") for name in ("bias.cuda", "pool2d.cuda", "softmax.cuda_teams")
]


def _both(device):
    for case in BOTH:
        for dtype in (np.float32, np.float64):
            run(case, dtype, make_inputs(case, dtype), device)
        _halves(case, device)
        with contextlib.ExitStack() as forced:
            for module in LADDERS:
                forced.enter_context(mock.patch.object(module, "choose", lambda op, rung, misfits: "plain"))
            run(case, np.float32, make_inputs(case, np.float32), device)
    for case in WIDE:
        run(case, np.float32, make_inputs(case, np.float32), device)


def _halves(case, device):
    for half in HALVES:
        inputs, launcher = make_inputs(case, np.float32), part(case)
        run(case, np.float32, inputs, device, with_halves(launcher, half))


# ---- ladders of products and convolutions ----------------------------------------------------------------------------

LAYOUTS = [(None, transposed), (None, None), (transposed, None)]
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "tf32": np.float32}
SAME = {"padding": (1, 1)}
CONVOLUTIONS = {  # rung: (x, w, settings) of the convolution and, where it fits, of its input gradient
    "plain": ((1, 3, 5, 6), (5, 3, 3, 3), {"stride": (2, 1), **SAME}),
    "register": ((1, 5, 5, 6), (7, 5, 3, 3), {"stride": (2, 2), **SAME}),
    "narrow": ((1, 8, 5, 6), (8, 8, 3, 3), SAME),
    "vector": ((1, 40, 3, 3), (40, 40, 3, 3), SAME),  # in slices
    "product": ((1, 8, 3, 3), (12, 8, 1, 1), {}),
}
FORWARD = {"tiled": ((1, 3, 5, 6), (5, 3, 3, 3), SAME)}  # alone
WEIGHTS = [  # of the weight gradient; tiles of two widths, kinds by the neighbours that a thread reads
    ("plain", (1, 3, 5, 6), (5, 3, 3, 3), {}),
    *((name, (1, 8, 5, 6), (o, 8, 3, 3), SAME) for name, o in (("narrow", 8), ("vector", 36))),
    *(("register", (1, c, 5, 6), (o, c, 2, 2), SAME) for c, o in ((2, 3), (3, 4))),
    ("product", (1, 20, 3, 3), (20, 20, 1, 1), {}),
    ("vector", (1, 8, 24, 24), (8, 8, 3, 3), SAME),  # enough pixels for slices
    ("plain", (1, 3, 24, 24), (2, 3, 3, 3), SAME),
]


def _products(device):
    for rung in ladder.RUNGS:
        sizes = (8, 1000, 12) if rung == "split" else (20, 36, 24)
        for layouts in LAYOUTS if rung == "buffered" else LAYOUTS[1:2]:
            case = row(*sizes, bias=True, layouts=layouts, relu=True)
            run(case, np.float32, make_inputs(case, np.float32), device, partial(ladder.forward, rung=rung))
    case = row(7, 5, 6)
    run(case, np.float64, make_inputs(case, np.float64), device)


def _tensor_products(device):
    """Products on tensor cores in each type."""
    for kind, dtype in TYPES.items():
        rungs = ladder.LADDERS[kind]
        for rung, layouts in product(rungs, LAYOUTS):
            if runs_on(device, rung) and (rung != "tma" or layouts == LAYOUTS[0]):
                case = row(16, 1040 if rung == "split" else 48, 8, bias=True, layouts=layouts, relu=True)
                with tf32(kind == "tf32"):
                    run(case, dtype, make_inputs(case, dtype), device, partial(ladder.forward, rung=rung))


def runs_on(device, rung):
    """Whether a device runs a rung of the matrix product: one is for Hopper alone, and the interpreter knows all."""
    if device != "cuda" or rung != "tma":
        return True
    from minigrad_kernels.toolchain.cuda.launch import device_architecture

    return device_architecture(0) == (9, 0)


def _convolutions(device):
    found = [(rung, case) for rung, (x, w, more) in CONVOLUTIONS.items() for case in convolution.rows(x, w, **more)[:2]]
    for rung, (x, w, more) in FORWARD.items():
        found.append((rung, convolution.rows(x, w, bias=True, relu=True, **more)[0]))
    found += [(rung, convolution.rows(x, w, **more)[2]) for rung, x, w, more in WEIGHTS]
    for rung, case in found:
        forced = partial(getattr(conv2d, case.function), rung=rung)
        run(case, np.float32, make_inputs(case, np.float32), device, forced)
        if rung == "plain":
            run(case, np.float64, make_inputs(case, np.float64), device)


def _tensor_convolutions(device):
    """Convolutions on tensor cores."""
    for kind, dtype in TYPES.items():
        for channels in (8, 40):  # of 40 the sums are cut into slices
            for case in convolution.rows((1, channels, 5, 6), (channels, channels, 3, 3), **SAME):
                forced = partial(getattr(conv2d, case.function), rung="tensor")
                with tf32(kind == "tf32"):
                    run(case, dtype, make_inputs(case, dtype), device, forced)


# ---- sums of losses --------------------------------------------------------------------------------------------------

LOSSES = (3, 8), (4097, 4)  # rows and classes


def _losses(device, dtype):
    there = lambda array: moved(array.astype(dtype), device)
    for rows, classes in LOSSES:
        x, target = np.random.default_rng(0).standard_normal((rows, classes)), np.arange(rows) % classes
        arrays = there(x), moved(target, device), softmax.IGNORED
        out, divisor, sums, dx = (there(np.zeros(shape)) for shape in ((), (), rows, x.shape))
        space = moved(np.zeros(losses.workspace(rows), np.uint8), device)
        losses.cross_entropy_total(*arrays, True, out, divisor, sums, space)
        losses.cross_entropy_grad(out, *arrays, sums, divisor, dx)


# ---- optimisers ------------------------------------------------------------------------------------------------------

RULES = [  # name, all its states, hyper-parameters
    ("sgd", 1, [0.1, 0.9, 0, 0.01, 0, 0, 1]),
    ("adam", 3, [1e-3, 0.9, 0.999, 1e-8, 0.01, 1, 0, 3]),
    ("rmsprop", 3, [0.1, 0.9, 1e-8, 0.01, 0.9, 0, 1]),
    ("adagrad", 1, [0.1, 0.1, 1e-8, 0.01, 0, 3]),
]


def _optimizers(device, dtype):
    rng, shapes = np.random.default_rng(0), [(5,), (7, 9), (1030,)]
    there = lambda low: [moved(rng.uniform(low, low + 1, shape).astype(dtype), device) for shape in shapes]
    for name, states, hyper in RULES:
        lists = there(1), there(1), *(there(9 - 4 * k) for k in range(states))
        getattr(optimizer, name)(*lists, np.array(hyper, np.float64))
    arrays, number = there(1), lambda *shape: moved(np.ones(shape), device)
    squares, factor = number(len(shapes)), number(1)
    optimizer.squared_norms(arrays, squares, moved(np.zeros(optimizer.workspace(arrays), np.uint8), device))
    optimizer.clip_factor(squares, 1.0, moved(np.zeros((), dtype), device), factor)
    optimizer.scale(arrays, factor)


def run_all(device):
    _both(device)
    _products(device)
    _tensor_products(device)
    _convolutions(device)
    _tensor_convolutions(device)
    for family in (_losses, _optimizers):
        family(device, np.float32)
        family(device, np.float64)


def main(device):
    if device == "cuda":
        import cupy

        cupy.cuda.set_allocator(None)  # each array is an allocation of its own, so that a tool sees where it ends
    run_all(device)
    print(f"every kernel was launched on {device}")


if __name__ == "__main__":
    main(sys.argv[1])
