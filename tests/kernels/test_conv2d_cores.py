"""Convolutions and their two gradients on tensor cores: results at every edge of the tiles, choice, refusals, costs."""

import dataclasses
import re
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import conv2d, interpreter
from minigrad_kernels.conv2d import cuda, cuda_tensor, cuda_weight
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.toolchain.cuda import report
from minigrad_kernels.toolchain.modes import tf32

from .cases import Output
from .cases.conv2d import pooled
from .kernel_runs import DEVICE, make_inputs, part, run, same_bits, to_tf32, wanted
from .test_conv2d_cuda import SAME, both, settings_of, started
from .test_conv2d_weight_cuda import SETTINGS, row

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype(np.float32)}
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "tf32": 0.0}  # of a result, relative, at most
SMALLEST = 2.0**-25  # half of what lies between neighbours of float16 near 0
COLUMNS = cuda_tensor.TILE[1]


def edges(chunk):
    """Around the tile, in pixels and in channels of both directions."""
    found = []
    for (h, w), made in zip(((1, 127), (3, 43)), (COLUMNS - chunk, COLUMNS + chunk), strict=True):
        found += both((1, chunk, h, w), (made, chunk, 3, 3), bias=True, **SAME)[:1]
        found += both((1, made, h, w), (chunk, made, 3, 3), **SAME)[1:]
    return found


def weight_rows(c, o, groups=1):
    return [row((2, c, 9, 10), (o, c // groups, 3, 3), *settings, groups) for settings in SETTINGS[::2]]


ROWS = [  # (rung, type, case)
    *(("tensor", "float16", case) for case in settings_of(8, 16)),
    *(("tensor", "tf32", case) for case in settings_of(4, 12)),
    *(("tensor", "float16", case) for case in both((1, 8, 5, 6), (8, 8, 1, 1), bias=True, relu=True)),
    *(("tensor", "float16", case) for case in both((0, 8, 5, 5), (8, 8, 3, 3))),
    *(("tensor", kind, case) for kind in TYPES for case in edges(4 if kind == "tf32" else 8)),
    *(("split", kind, case) for kind in TYPES for case in both((1, 40, 4, 5), (40, 40, 3, 3), bias=True, **SAME)),
    *(("tensor", "float16", case) for case in weight_rows(8, 16) + weight_rows(16, 32, 2)),
    *(("tensor", "bfloat16", case) for case in (row((2, 16, 9, 8), (72, 16, 3, 3)), row((1, 8, 40, 30), (8, 8, 1, 1)))),
    *(("tensor", "bfloat16", case) for case in (row((600, 8, 1, 1), (8, 8, 1, 1)), row((0, 8, 5, 5), (8, 8, 3, 3)))),
    *(("tensor", "tf32", case) for case in weight_rows(4, 12) + [row((2, 16, 9, 8), (68, 16, 3, 3), padding=(1, 1))]),
]  # fmt: skip
FIRST = {(name, kind, case.function): case for name, kind, case in reversed(ROWS) if min(case.shapes[0])}
NAMED = {"ids": lambda value: str(value).removeprefix("conv2d.")}
each_row = pytest.mark.parametrize("name, kind, case", ROWS, **NAMED)
each_first = pytest.mark.parametrize("name, kind, case", [(*key[:2], case) for key, case in FIRST.items()], **NAMED)


def forced(name, kind, case, inputs, **options):
    """Outputs of one rung, which must be the one that runs."""
    function = cuda_weight.weight_grad if case.function == "weight_grad" else getattr(cuda, case.function)
    with tf32(kind == "tf32"):
        return run(case, TYPES[kind], inputs, DEVICE, partial(function, rung=name), **options)


def rounded_operands(inputs):
    """Arrays of float32 as TF32; the bias is added, not multiplied."""
    return [*map(to_tf32, inputs[:2]), *inputs[2:]]


def test_every_kernel_is_here():
    """In every type that it has: split comes after another one."""
    found = {(kind, case.function) for name, kind, case in ROWS if name == "tensor"}
    assert found == {(kind, function) for kind in TYPES for function in ("forward", "input_grad", "weight_grad")}


@pytest.mark.deep
@each_row
def test_sums_of_small_integers_are_exact_and_rounded_once(name, kind, case):
    inputs = make_inputs(case, TYPES[kind], integers=True)
    same_bits(forced(name, kind, case, inputs), [want.astype(TYPES[kind]) for want in wanted(case, inputs)])


@each_first
def test_rungs_round_as_they_should_and_the_same_twice(name, kind, case):
    inputs = make_inputs(case, TYPES[kind])
    results = forced(name, kind, case, inputs)
    same_bits(results, forced(name, kind, case, inputs))
    exact = rounded_operands(inputs) if kind == "tf32" else inputs
    bounds = case.bounds(part(case, ".reference"), exact, np.finfo(np.float32).eps)
    for got, want, bound in zip(results, wanted(case, exact), bounds, strict=True):
        error = np.abs(got.astype(np.float64) - want)
        assert (error <= bound + ROUNDING[kind] * (np.abs(want) + bound) + SMALLEST).all()
    if kind == "tf32":  # their operands are rounded indeed
        near, far = (np.abs(results[0] - wanted(case, operands)[0]).mean() for operands in (exact, inputs))
        assert 4 * near < far


@pytest.mark.parametrize("name, kind, case", [(*k[:2], case) for k, case in FIRST.items() if k[1] != "tf32"], **NAMED)
def test_sums_may_be_asked_for_in_float32(name, kind, case):
    (output,) = case.outputs
    single = dataclasses.replace(case, outputs=(Output(output.shape, output.layout, "float32"),))
    inputs = make_inputs(case, TYPES[kind], integers=True)
    same_bits(forced(name, kind, single, inputs), wanted(case, inputs))


@each_first
def test_nan_reaches_exactly_what_reads_it(name, kind, case):
    """From corners of both operands, but of filters: ReLU lets it pass."""
    for position in (0, 1) if case.function == "weight_grad" else (0,):
        inputs = make_inputs(case, TYPES[kind], integers=True)
        for corner in ((0, 0, 0, 0), (-1, -1, -1, -1), (0, -1, -1, 0)):
            inputs[position][corner] = np.nan
        (got,), (want,) = forced(name, kind, case, inputs), wanted(case, inputs)
        np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), np.isnan(want))


# ---- choice ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["forward", "input_grad"])
def test_long_sums_of_few_results_are_cut(function):
    name = f"tensor_bfloat16_{function}"
    many, few = ((images, 512, 4, 4) for images in (1024, 32))
    for x, names in ((many, [name]), (few, [name, "matmul_add_bfloat16"])):
        assert [found for found, _ in started(function, x, (512, 512, 3, 3), **SAME, dtype=TYPES["bfloat16"])] == names


def test_the_mode_tf32_decides_where_channels_are_multiples_of_four():
    layer = (64, 32, 26, 26), (64, 32, 3, 3)
    assert started("forward", *layer)[0][0] == "vector_128x64_forward"
    with tf32():
        assert started("forward", *layer)[0][0] == "tensor_tf32_forward"
        assert started("input_grad", *layer)[0][0] == "tensor_tf32_input_grad"
        assert started("forward", (64, 1, 28, 28), (32, 1, 3, 3))[0][0] == "register_forward"


def launched(case, dtype):
    """Names of the kernels that the launcher starts."""
    with interpreter.recording() as launches:
        same_bits(
            run(case, dtype, make_inputs(case, dtype, integers=True), "interpreter"),
            [want.astype(dtype) for want in wanted(case, make_inputs(case, dtype, integers=True))],
        )
    return [name for name, _ in launches]


def test_launchers_take_16_bits_and_widen_what_tensor_cores_do_not_suit():
    half = TYPES["float16"]
    forward, input_grad = both((1, 8, 5, 6), (8, 8, 3, 3), bias=True)
    assert launched(forward, half) == ["conv2d_tensor_float16_forward"]
    assert launched(input_grad, half) == ["conv2d_tensor_float16_input_grad"]
    weight_grad = row((1, 8, 5, 6), (8, 8, 3, 3))
    space = lambda inputs, params, dtype: conv2d.workspace("weight_grad", (1, 8, 5, 6), (8, 8, 3, 3), *params.values(),
                                                           dtype, inputs[0])  # fmt: skip
    assert launched(dataclasses.replace(weight_grad, workspace=space), half) == ["conv2d_weight_tensor_float16"]
    depthwise, _ = both((2, 8, 7, 9), (8, 1, 3, 3), groups=8, **SAME)
    assert launched(depthwise, half) == ["conv2d_plain_forward_f32"]


def test_pooling_follows_in_16_bits():
    case = pooled((1, 8, 9, 8), (8, 8, 3, 3), (2, 2), (2, 2))
    inputs = make_inputs(case, np.float16, integers=True)
    with interpreter.recording() as launches:
        out, positions = run(case, np.float16, inputs, "interpreter")
    want, places = wanted(case, inputs)
    same_bits((out, positions), (want.astype(np.float16), places.astype(positions.dtype)))
    assert [name for name, _ in launches][0] == "conv2d_tensor_float16_forward"


def test_pooling_over_more_taps_than_a_byte_numbers_in_16_bits():
    case = pooled((1, 8, 17, 18), (8, 8, 1, 1), (17, 16), (1, 1))
    inputs = make_inputs(case, np.float16, integers=True)
    want, places = wanted(case, inputs)
    same_bits(run(case, np.float16, inputs, "interpreter"), (want.astype(np.float16), places.astype(np.int32)))


REFUSED = {
    "no tf32": (
        "tensor",
        np.float32,
        (4, 8),
        "conv2d: the rung tensor wants float16, bfloat16, or float32 in the mode",
    ),
    "channels": ("tensor", np.float16, (4, 8), "conv2d: the rung tensor wants addresses that are multiples of 16, and"),
    "float32": ("vector", np.float16, (8, 8), "conv2d: the rung vector wants float32; without"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_rung_that_does_not_fit_says_why(why):
    rung, dtype, (c, o), message = REFUSED[why]
    with pytest.raises(ShapeError, match="^" + re.escape(message)):
        started("forward", (1, c, 8, 8), (o, c, 3, 3), rung=rung, dtype=dtype)


# ---- costs -----------------------------------------------------------------------------------------------------------


on_the_interpreter = pytest.mark.skipif(DEVICE != "interpreter", reason="reads what the interpreter counts")


def counts_of(name, kind, case):
    with interpreter.recording() as launches:
        forced(name, kind, case, make_inputs(case, TYPES[kind], integers=True))
    return launches[0][1].counts


@on_the_interpreter
@pytest.mark.parametrize("function", ["forward", "input_grad"])
@pytest.mark.parametrize("kind", ["float16", "tf32"])
def test_tiles_read_what_is_inside_once_for_each_tap(kind, function):
    """Without bank conflicts; results are written in whole sectors."""
    (down, columns), size = cuda_tensor.TILE, TYPES[kind].itemsize
    reads, h, w = 16, 8, 2 * down // 8  # two tiles of pixels, one of columns
    c, o = (reads, columns) if function == "forward" else (columns, reads)
    (case,) = [case for case in both((1, c, h, w), (o, c, 3, 3), **SAME) if case.function == function]
    found = counts_of("tensor", kind, case)
    inside = (3 * h - 2) * (3 * w - 2)  # taps of all pixels that are not padding
    assert found.bytes_loaded["source"] == size * reads * inside
    assert found.bytes_loaded["filters"] == found.sector_bytes_loaded["filters"] == 2 * size * 9 * c * o
    assert found.bytes_stored["result"] == found.sector_bytes_stored["result"] == size * columns * h * w
    assert found.shared_wavefronts <= 1.05 * found.shared_wavefronts_ideal
    products = sum(count for opcode, count in found.instructions.items() if opcode.startswith("mma"))
    steps = 64 // size
    assert products == h * w // 16 * (columns // 8) * 2 * -(-9 * reads // steps)


@on_the_interpreter
@pytest.mark.parametrize("kind", TYPES)
def test_weight_gradients_have_no_bank_conflicts(kind):
    found = counts_of("tensor", kind, row((1, 16, 12, 11), (64, 16, 3, 3), padding=(1, 1)))
    assert found.shared_wavefronts <= 1.05 * found.shared_wavefronts_ideal
    size, inside = TYPES[kind].itemsize, (3 * 12 - 2) * (3 * 11 - 2)
    assert found.bytes_loaded["x"] == size * 16 * inside
    assert found.bytes_loaded["g"] == size * 64 * 12 * 11 * 2  # two tiles of rows


LOOPS = {  # kernels -> instructions of the loop over tiles, at most, beside HMMA
    "forward": (cuda_tensor.TENSOR["float16", False], 32, 94),
    "input gradient": (cuda_tensor.TENSOR["bfloat16", True], 32, 104),
    "forward, TF32": (cuda_tensor.TENSOR["tf32", False], 32, 210),  # a rounding is two instructions
    "weight gradient": (cuda_tensor.WEIGHT_TENSOR["bfloat16"], 32, 134),
}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("what", LOOPS)
def test_the_loop_over_tiles_is_products_fragments_and_copies(what, architecture):
    pytest.importorskip("numba_cuda")
    kernel, products, others = LOOPS[what]
    loops = [found for found in report.loops(kernel, architecture) if any(op.startswith("HMMA") for op in found)]
    (loop,) = loops
    count = lambda prefix: sum(times for opcode, times in loop.items() if opcode.startswith(prefix))
    assert count("HMMA") == products and loop.total() - products <= others
    assert count("LDSM") == (8 if "TF32" in what else 12)
    assert count("LDGSTS") == 6 and count("BAR") == 1
