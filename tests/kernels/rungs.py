"""What a rung of a matrix product or a convolution promises, checked on a row of tests/kernels/cases.

function: forward, or another direction, of a cuda module, with the rung that is to run; or a launcher
kind      a key of TYPES, the type of the arrays; tf32 is float32 in the mode of that name
"""

from functools import partial

import ml_dtypes
import numpy as np

from minigrad_kernels import interpreter
from minigrad_kernels.toolchain.modes import tf32

from .cases.matmul import transposed
from .kernel_runs import DEVICE, laid_out, make_inputs, moved, part, run, to_tf32, wanted

TYPES = {name: np.dtype(name) for name in ("float32", "float64", "float16")}
TYPES |= {"bfloat16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype("float32")}
DIRECTIONS = "forward", "input_grad", "weight_grad"
KK, KN, MN = (None, transposed), (None, None), (transposed, None)  # whether a and b lie along k, or along m and n


def result(function, kind, case, inputs, device=DEVICE):
    with tf32(kind == "tf32"):
        (got,) = run(case, TYPES[kind], inputs, device, function)
    return got


def same(got, want, *what):
    got, want = got.astype(np.float64), want.astype(got.dtype).astype(np.float64)  # NumPy sees NaN in these
    np.testing.assert_array_equal(got, want, err_msg=" ".join(map(str, what)))


def exact(function, kind, case, residual=False, device=DEVICE, nan=()):
    """Sums of small integers are exact, and rounded once to the type of the result; also with a residual, where a NaN
    of it passes ReLU. NaN at these (input, index) reach what reads them and nothing else."""
    inputs, (output,) = make_inputs(case, TYPES[kind], integers=True), case.outputs
    for position, place in nan:
        inputs[position][place] = np.nan
    (want,) = wanted(case, inputs)
    if residual:
        beside = np.random.default_rng(5).integers(-40, 41, output.shape).astype(TYPES[kind])
        beside.reshape(-1)[beside.size // 2 :][:1] = np.nan
        beside = laid_out(beside, output.layout)
        want = part(case, ".reference")(*case.arguments(inputs), residual=beside)
        function = partial(function, residual=moved(beside, device))
    same(result(function, kind, case, inputs, device), want, kind, case, f"{residual=}")


def rounds(function, kind, case):
    """Of random numbers, operands of TF32 are rounded, sums as float32, and results once. Twice gives the same bits,
    on a GPU; in the interpreter nothing could make them others."""
    inputs = make_inputs(case, TYPES[kind])
    got = result(function, kind, case, inputs)
    if DEVICE != "interpreter":
        same(result(function, kind, case, inputs), got, function, kind, case)
    given = [*map(to_tf32, inputs[:2]), *inputs[2:]] if kind == "tf32" else inputs
    (want,), (bound,) = wanted(case, given), case.bounds(part(case, ".reference"), given, np.finfo(np.float32).eps)
    if got.itemsize == 2:
        bound = bound + ml_dtypes.finfo(got.dtype).eps / 2 * (np.abs(want) + bound) + 2.0**-25  # half a subnormal step
    assert got.dtype == TYPES[kind]
    assert (np.abs(got.astype(np.float64) - want) <= bound).all(), f"{function} {kind} {case}"  # so that a NaN fails


def unwritten(shape, order=None, dtype=np.float32, late=0):
    """Memory of the interpreter of which only type, shape, layout and place are asked.

    order: axes in memory, the slowest first; late: so many elements behind a multiple of 16 bytes
    """
    order, size = order or tuple(range(len(shape))), int(np.prod(shape))
    memory = np.empty(size + late, dtype).view(interpreter.Array)[late:]
    return memory.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
