"""Every CUDA kernel of the package at small sizes, under each tool of compute-sanitizer.

python -m tests.gpu.small DEVICE runs them on "cuda" or on the interpreter.
"""

import contextlib
import importlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from unittest import mock

import numpy as np

from minigrad_kernels import optimizer
from minigrad_kernels.conv2d import cuda as conv2d
from minigrad_kernels.matmul import cuda as ladder
from minigrad_kernels.toolchain.modes import tf32
from tests.kernels.cases import bias, norm, pool2d
from tests.kernels.cases import conv2d as convolution
from tests.kernels.cases.matmul import row, transposed
from tests.kernels.kernel_runs import CASES, exists, make_inputs, moved, part, run, scratch, with_halves
from tests.kernels.rungs import TYPES

LAST = "every kernel was launched on cuda"

# ---- families: the smallest rows of their tables ---------------------------------------------------------------------

FEW = 3  # rows of each function
PARTS = (1100, 8)  # of a matrix whose columns are summed in two parts
LADDERS = [importlib.import_module(f"minigrad_kernels.{name}.cuda") for name in ("bias", "pool2d")]  # with plain rungs


def _smallest():
    found = {}
    for case in sorted(CASES, key=lambda case: sum(np.prod(shape) for shape in case.shapes if shape is not None)):
        if exists(case, ".cuda") and case.family not in ("conv2d", "matmul"):  # whose ladders come below
            found.setdefault((case.family, case.function), []).append(case)
    rows = [case for cases in found.values() for case in cases[:FEW]]
    rows += pool2d.maximum((1, 4, 5, 7), (3, 2), (2, 2), (1, 1))  # channels in fours
    return [*rows, *bias.rows(PARTS), norm.statistics(PARTS), norm.grads(PARTS)]


def _families():
    """(case, kind, function, None for the launcher) of each launch, as the next ones."""
    cases = _smallest()
    for case in cases:
        yield from ((case, kind, None) for kind in ("float32", "float64"))
        yield from ((case, "float32", with_halves(part(case), TYPES[half])) for half in ("float16", "bfloat16"))
    with contextlib.ExitStack() as forced:
        for module in LADDERS:
            forced.enter_context(mock.patch.object(module, "choose", lambda op, rung, misfits: "plain"))
        yield from ((case, "float32", None) for case in cases if case.family in ("bias", "norm", "pool2d"))


# ---- ladders of products and convolutions ----------------------------------------------------------------------------

LAYOUTS = [(None, transposed), (None, None), (transposed, None)]
TENSOR = "float16", "bfloat16", "tf32"  # kinds for tensor cores
SAME = {"padding": (1, 1)}
CONVOLUTIONS = [  # rung, x, w, settings, directions: forward, gradient of the input, of the weights
    ("plain", (1, 3, 5, 6), (5, 3, 3, 3), {"stride": (2, 1), **SAME}, "fiw"),
    ("plain", (1, 3, 24, 24), (2, 3, 3, 3), SAME, "w"),  # enough pixels for slices
    ("tiled", (1, 3, 5, 6), (5, 3, 3, 3), SAME, "f"),
    ("register", (1, 5, 5, 6), (7, 5, 3, 3), {"stride": (2, 2), **SAME}, "fi"),
    *(("register", (1, c, 5, 6), (o, c, 2, 2), SAME, "w") for c, o in ((2, 3), (3, 4))),  # kinds by neighbours
    ("narrow", (1, 8, 5, 6), (8, 8, 3, 3), SAME, "fiw"),
    ("vector", (1, 40, 3, 3), (40, 40, 3, 3), SAME, "fi"),  # in slices
    ("vector", (1, 8, 5, 6), (36, 8, 3, 3), SAME, "w"),
    ("vector", (1, 8, 24, 24), (8, 8, 3, 3), SAME, "w"),
    ("product", (1, 20, 3, 3), (20, 20, 1, 1), {}, "fiw"),
    *(("tensor", (1, c, 5, 6), (c, c, 3, 3), SAME, "fiw") for c in (8, 40)),  # of 40 the sums are cut into slices
]
KINDS = {"plain": ("float32", "float64"), "tensor": TENSOR}  # of these rungs


def runs_on(device, rung):
    """Whether a device runs a rung of the matrix product: one is for Hopper alone, and the interpreter knows all."""
    if device != "cuda" or rung != "tma":
        return True
    from minigrad_kernels.toolchain.cuda.launch import device_architecture

    return device_architecture(0) == (9, 0)


def _products(device):
    yield row(7, 5, 6), "float64", None
    for kind in ("float32", *TENSOR):
        yield row(16, 1040, 8, bias=True, relu=True), kind, None  # in slices
        for rung, layouts in product(ladder.LADDERS[kind], LAYOUTS):
            if runs_on(device, rung) and (rung != "tma" or layouts == LAYOUTS[0]):
                yield row(16, 48, 24, bias=True, layouts=layouts, relu=True), kind, partial(ladder.forward, rung=rung)


def _convolutions():
    for rung, x, w, settings, directions in CONVOLUTIONS:
        for direction, case in zip("fiw", convolution.rows(x, w, **settings), strict=True):
            if direction in directions:
                forced = partial(getattr(conv2d, case.function), rung=rung)
                yield from ((case, kind, forced) for kind in KINDS.get(rung, ("float32",)))


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
    optimizer.squared_norms(arrays, squares, scratch(device, []))
    optimizer.clip_factor(squares, 1.0, moved(np.zeros((), dtype), device), factor)
    optimizer.scale(arrays, factor)


def main(device):
    if device == "cuda":
        import cupy

        cupy.cuda.set_allocator(None)  # each array is an allocation of its own, so that a tool sees where it ends
    for launches in (_families(), _products(device), _convolutions()):
        for case, kind, function in launches:
            with tf32(kind == "tf32"):
                run(case, TYPES[kind], make_inputs(case, TYPES[kind]), device, function)
    for dtype in (np.float32, np.float64):
        _optimizers(device, dtype)
    print(f"every kernel was launched on {device}")


# ---- compute-sanitizer -----------------------------------------------------------------------------------------------

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
LIMIT = 360  # seconds; kernels run up to a hundred times slower under a tool, and the tools run side by side
COMMAND = (sys.executable, "-m", "tests.gpu.small", "cuda")


def outcome(command):
    """ "clean", or what went wrong in a few words; all that was printed goes to the log then."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"not finished in {LIMIT} s"
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode == 0 and LAST in lines:
        return "clean"
    print(*lines[:40], "...", *lines[-40:], sep="\n", flush=True)
    return f"exit code {done.returncode}: {lines[-1] if lines else 'no output'}"


def sanitizer(found):
    """Of each tool "clean" or what it said."""
    program = shutil.which("compute-sanitizer")
    if not program:
        found |= {"failed": True, "why": "compute-sanitizer is not on the PATH"}
        return
    found["alone"] = outcome(COMMAND)  # the driver keeps what it compiles here for the others
    if found["alone"] == "clean":
        commands = [(program, "--tool", tool, "--error-exitcode", "99", *COMMAND) for tool in TOOLS]
        with ThreadPoolExecutor(len(TOOLS)) as pool:
            found |= zip(TOOLS, pool.map(outcome, commands), strict=True)
    print(f"  {found}", flush=True)
    found["failed"] = any(found.get(tool) != "clean" for tool in TOOLS)


if __name__ == "__main__":
    main(sys.argv[1])
