"""Kernels of float16 and bfloat16 on CUDA: what the float32 kernels give for the same numbers, rounded once.

Their arithmetic is that of float32 in the same order, so nothing but that rounding may differ.
"""

from collections import defaultdict

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import bias, interpreter, norm, pool2d

from .kernel_runs import CASES, DEVICE, generator, make_inputs, part, run, same_bits, widened_arrays, with_halves

FAMILIES = ("bias", "norm", "pool2d", "scatter")  # elementwise has tests of its own
FALLING_BACK = ("standardize", "standardize_grad", "max_select")  # have no kernels of 16 bits
HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
SHORT = {"float16": "f16", "bfloat16": "bf16"}
WRITTEN, READ = 1100, 25_000  # elements at most: more than a line, more than a part of a sum (bias/plan.py)
TAPS = 256  # of a window, at most: positions are bytes
each_half = pytest.mark.parametrize("half", HALVES, ids=str)


def small(case):
    window = np.prod(case.params.get("kernel_size", 1))
    written = [int(np.prod(output.shape)) for output in case.outputs]
    read = [int(np.prod(shape)) for shape in case.shapes if shape is not None]
    return max(written) <= WRITTEN and min(written) and max(read) <= READ and window <= TAPS


def groups():
    """Rows by what may take another way through a kernel: rung, number of axes, what is there and what is not."""
    found = defaultdict(list)
    for case in CASES:
        if case.family in FAMILIES and case.function not in FALLING_BACK and small(case):
            there = tuple(shape is None for shape in case.shapes), case.absent
            flags = tuple(value for value in case.params.values() if isinstance(value, bool))
            axes, quads = len(case.shapes[0]), case.shapes[0][1] % 4 == 0
            found[case.family, case.function, axes, there, flags, quads].append(case)
    return found.values()


ROWS = [max(rows, key=lambda case: np.prod(case.shapes[0])) for rows in groups()]
each_row = pytest.mark.parametrize("case", ROWS, ids=str)


def rounded(launcher, half):
    """A function that calls the launcher in float32 on inputs of 16 bits, and rounds what would be of 16 bits."""

    def function(*arguments):
        given, roles = widened_arrays(launcher, arguments)
        read = {name: given[name].astype(half).astype(np.float32) for name, role in roles.items() if role == "r"}
        launcher(**(given | read))
        with np.errstate(over="ignore"):
            for name, role in roles.items():
                if role == "w":
                    given[name][...] = given[name].astype(half)

    return function


def compare(case, half, inputs):
    with interpreter.recording() as launches:
        got = run(case, np.float32, inputs, DEVICE, with_halves(part(case), half))
    same_bits(got, run(case, np.float32, inputs, DEVICE, rounded(part(case), half)))
    if DEVICE == "interpreter":
        endings = f"_{SHORT[half.name]}", f"_{SHORT[half.name]}_u8"
        assert any(name.endswith(endings) for name, _ in launches)


@each_half
@each_row
def test_results_are_those_of_float32_rounded(case, half):
    compare(case, half, make_inputs(case, np.float32))


@each_half
@pytest.mark.parametrize("case", [case for case in ROWS if case.nan and case.family != "norm"], ids=str)
def test_what_16_bits_have_besides_numbers(case, half):
    """Both zeros, infinities, NaN, the least and the greatest, at places of all inputs of that type."""
    info, rng, inputs = ml_dtypes.finfo(half), generator(case), make_inputs(case, np.float32)
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, info.smallest_subnormal, info.max, info.min], np.float32)
    for x in inputs:
        if x.dtype == np.float32:
            places = np.unravel_index(rng.permutation(x.size)[: edges.size], x.shape)
            x[places] = edges[: places[0].size]
    with np.errstate(invalid="ignore", over="ignore"):
        compare(case, half, inputs)


# ---- traffic -----------------------------------------------------------------------------------------------------


def there(half, *shape):
    """An array on the interpreter, channels last if it has four axes."""
    rng = np.random.default_rng(len(shape))
    values = rng.standard_normal([shape[axis] for axis in (0, 2, 3, 1)] if len(shape) == 4 else shape).astype(half)
    array = interpreter.array(values)
    return array.transpose(0, 3, 1, 2) if len(shape) == 4 else array


def space(family, *arguments):
    return interpreter.empty(family.workspace(*arguments), np.uint8)


SHAPE, WINDOW = (4, 32, 8, 8), ((2, 2), (2, 2), (0, 0), (1, 1))
VECTORS = [interpreter.array(np.linspace(1, 2, 32, dtype=np.float32) + k) for k in range(4)]
TABLES = [pool2d.average_windows(8, 2, 2, 0, False, True)] * 2
WIDE = {  # name: (call on x, g and out of SHAPE, and y and positions of windows; what moves once)
    "bias_relu": (lambda x, g, out, *_: bias.bias_relu(x, VECTORS[0], out), ["x", "out"]),
    "bias_relu_grad": (
        lambda x, g, out, *_: bias.bias_relu_grad(g, x, out, VECTORS[3].copy(), space(bias, SHAPE)),
        ["g", "out", "dx"],
    ),
    "column_sums": (lambda x, g, out, *_: bias.column_sums(x, VECTORS[3].copy(), space(bias, SHAPE)), ["x"]),
    "batch_normalize": (
        lambda x, g, out, *_: norm.batch_normalize(x, *VECTORS, 1e-5, g, True, out),
        ["x", "residual", "out"],
    ),
    "max_forward": (lambda x, g, out, y, positions: pool2d.max_forward(x, *WINDOW, y, positions), ["x", "out"]),
    "max_input_grad": (
        lambda x, g, out, y, positions: pool2d.max_input_grad(y, positions, *WINDOW, out),
        ["dx"],
    ),
    "average_forward": (lambda x, g, out, y, *_: pool2d.average_forward(x, *TABLES, y), ["x", "out"]),
    "average_input_grad": (lambda x, g, out, y, *_: pool2d.average_input_grad(y, *TABLES, out), ["dx"]),
}


@each_half
@pytest.mark.parametrize("name", WIDE)
def test_vector_rungs_move_64_bits_a_thread_and_everything_once(name, half):
    call, once = WIDE[name]
    small = (4, 32, 4, 4)
    positions = interpreter.array(np.zeros((4, 4, 4, 32), np.uint8)).transpose(0, 3, 1, 2)
    arrays = *(there(half, *SHAPE) for _ in range(3)), there(half, *small), positions
    with interpreter.recording() as launches:
        call(*arrays)
    launched, report = launches[0]
    counts, windows = report.counts, "pool" in launched
    assert launched.endswith(f"_vector_{SHORT[half.name]}")
    moved = counts.bytes_loaded | counts.bytes_stored
    sectors = counts.sector_bytes_loaded | counts.sector_bytes_stored
    for array in once:
        of_windows = windows and array == "out"
        assert moved[array] == sectors[array] == 2 * np.prod(small if of_windows else SHAPE), array
    requests = {op: n for op, n in counts.instructions.items() if op.startswith(("ld.global", "st.global")) and n}
    assert any(".v2.u32" in op for op in requests) and not any(op.endswith(".u16") for op in requests)
