"""Convolutions and their two gradients on tensor cores: results at every edge of the tiles, choice, refusals, costs."""

import dataclasses
import re
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import conv2d, interpreter
from minigrad_kernels.conv2d import cuda, cuda_async, cuda_weight, cuda_weight_async
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.toolchain.cuda import report
from minigrad_kernels.toolchain.tf32_mode import tf32

from .cases import Output
from .cases.conv2d import pooled
from .kernel_runs import DEVICE, make_inputs, part, run, same_bits, to_tf32, wanted
from .test_conv2d_cuda import SAME, TWO, both, settings_of, started
from .test_conv2d_weight_cuda import SETTINGS, row

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype(np.float32)}
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "tf32": 0.0}  # of a result, relative, at most
SMALLEST = 2.0**-25  # half of what lies between neighbours of float16 near 0
PIXELS = {64: ((7, 9), (8, 8)), 128: ((1, 127), (3, 43))}  # around a tile of so many rows


def edges(name, chunk):
    """Around the tile of a rung, in pixels and in channels of both directions."""
    rows, columns = cuda.ON_CORES[name][1]
    found = []
    for (h, w), made in zip(PIXELS[rows], (columns - chunk, columns + chunk), strict=True):
        found += both((1, chunk, h, w), (made, chunk, 3, 3), bias=True, **SAME)[:1]
        found += both((1, made, h, w), (chunk, made, 3, 3), **SAME)[1:]
    return found


def weight_rows(c, o, groups=1):
    return [row((2, c, 9, 10), (o, c // groups, 3, 3), *settings, groups) for settings in SETTINGS[::2]]


ROWS = [  # (rung, type, case)
    *(("tensor", "float16", case) for case in settings_of(3, 5) + both((1, 1, 8, 9), (33, 1, 3, 3), bias=True)),
    *(("tensor", "float16", case) for case in both((0, 4, 5, 5), (4, 4, 3, 3)) + both((1, 33, 6, 5), (66, 33, 2, 1))),
    *(("tensor", "bfloat16", case) for case in settings_of(2, 3)[:4]),
    *(("async_64x64", "float16", case) for case in settings_of(8, 16)),
    *(("async_128x32", "tf32", case) for case in settings_of(4, 12)),
    *(("async_128x32", "float16", case) for case in both((1, 8, 5, 6), (8, 8, 1, 1), bias=True, relu=True)),
    *((name, kind, case) for name, kind, chunk in (
        ("async_128x32", "bfloat16", 8), ("async_64x64", "bfloat16", 8), ("async_128x128", "float16", 8),
        ("async_128x128", "bfloat16", 8), ("async", "float16", 8), ("async", "bfloat16", 8), ("async", "tf32", 4),
    ) for case in edges(name, chunk)),
    *(("split", kind, case) for kind in TYPES for case in both((1, 40, 4, 5), (40, 40, 3, 3), bias=True, **SAME)),
    *(("split", "float16", case) for case in both((1, 23, 3, 3), (17, 23, 5, 5), padding=(2, 2), bias=True)),
    *(("tensor", "float16", case) for case in weight_rows(3, 5) + weight_rows(18, 20, 2)),
    *(("tensor", "float16", case) for case in (row((1, 33, 6, 5), (65, 33, 2, 1)), row((600, 1, 1, 1), (2, 1, 1, 1)))),
    *(("tensor", "bfloat16", case) for case in (row((1, 5, 40, 30), (3, 5, 3, 3)), row((0, 3, 5, 5), (4, 3, 3, 3)))),
    *(("async", "float16", case) for case in weight_rows(8, 16) + weight_rows(16, 32, 2)),
    *(("async", "bfloat16", case) for case in (row((2, 16, 9, 8), (72, 16, 3, 3)), row((1, 8, 40, 30), (8, 8, 1, 1)))),
    *(("async", "tf32", case) for case in weight_rows(4, 12) + [row((2, 16, 9, 8), (68, 16, 3, 3), padding=(1, 1))]),
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


def test_every_rung_is_here():
    """In every type that it has: split comes after another one."""
    found = {(name, kind, case.function) for name, kind, case in ROWS if name != "split"}
    kernels = {
        (name, key[0], "input_grad" if key[3] else "forward")
        for name, (kernels, tile) in cuda.ON_CORES.items()
        for key in kernels
        if key[1:3] == tile
    }
    kernels |= {("async", kind, "weight_grad") for kind in TYPES}
    assert found == kernels | {("tensor", kind, "weight_grad") for kind in ("float16", "bfloat16")}


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

CHOICE = {  # (x, w, settings) -> kernels in bfloat16: forward, of the input gradient
    "keras 1": ((64, 1, 28, 28), (32, 1, 3, 3), {}, "tensor", "128x32"),
    "keras 2": ((512, 32, 26, 26), (64, 32, 3, 3), {}, "128x64", "128x32"),
    "keras 2, few images": ((64, 32, 11, 11), (64, 32, 3, 3), {}, "64x64", "128x32"),
    "lenet 2": ((64, 6, 14, 14), (16, 6, 5, 5), {}, "tensor", "128x32"),
    "resnet 1": ((128, 3, 32, 32), (64, 3, 3, 3), SAME, "tensor", "128x32"),
    "resnet 2": ((128, 64, 32, 32), (64, 64, 3, 3), SAME, "128x64", "128x64"),
    "resnet 3": ((128, 64, 32, 32), (128, 64, 3, 3), TWO, "128x128", "128x64"),
    "resnet 4": ((512, 256, 8, 8), (256, 256, 3, 3), SAME, "128x128", "128x128"),
    "resnet 5": ((128, 512, 4, 4), (512, 512, 3, 3), SAME, "128x64", "128x64"),
    "resnet 5, few images": ((32, 512, 4, 4), (512, 512, 3, 3), SAME, "64x64", "64x64"),
    "shortcut": ((128, 64, 32, 32), (128, 64, 1, 1), dict(stride=(2, 2)), "128x128", "128x64"),
}


@pytest.mark.parametrize("what", CHOICE)
def test_the_best_tile_is_chosen_by_shape(what):
    x, w, settings, *tiles = CHOICE[what]
    for function, tile in zip(("forward", "input_grad"), tiles, strict=True):
        (name, _), *rest = started(function, x, w, **settings, dtype=TYPES["bfloat16"])
        wanted = f"tensor_bfloat16_{function}" if tile == "tensor" else f"asynchronous_bfloat16_{tile}_{function}"
        assert name == wanted and [other for other, _ in rest] in ([], ["matmul_add_bfloat16"])


def test_the_mode_tf32_decides_where_channels_are_multiples_of_four():
    layer = (64, 32, 26, 26), (64, 32, 3, 3)
    assert started("forward", *layer)[0][0] == "vector_128x64_forward"
    with tf32():
        assert started("forward", *layer)[0][0] == "asynchronous_tf32_128x64_forward"
        assert started("input_grad", *layer)[0][0] == "asynchronous_tf32_128x32_input_grad"
        assert started("forward", (64, 1, 28, 28), (32, 1, 3, 3))[0][0] == "direct_1_forward"


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
    assert launched(forward, half) == ["conv2d_asynchronous_float16_128x32_forward"]
    assert launched(input_grad, half) == ["conv2d_asynchronous_float16_128x32_input_grad"]
    weight_grad = row((1, 8, 5, 6), (8, 8, 3, 3))
    space = lambda inputs, params, dtype: conv2d.workspace("weight_grad", (1, 8, 5, 6), (8, 8, 3, 3), *params.values(),
                                                           dtype, inputs[0])  # fmt: skip
    assert launched(dataclasses.replace(weight_grad, workspace=space), half) == ["conv2d_weight_asynchronous_float16"]
    depthwise, _ = both((2, 8, 7, 9), (8, 1, 3, 3), groups=8, **SAME)
    assert launched(depthwise, half) == ["conv2d_depthwise_forward"]


def test_pooling_follows_in_16_bits():
    case = pooled((1, 8, 9, 8), (8, 8, 3, 3), (2, 2), (2, 2))
    inputs = make_inputs(case, np.float16, integers=True)
    with interpreter.recording() as launches:
        out, positions = run(case, np.float16, inputs, "interpreter")
    want, places = wanted(case, inputs)
    same_bits((out, positions), (want.astype(np.float16), places.astype(positions.dtype)))
    assert [name for name, _ in launches][0] == "conv2d_asynchronous_float16_128x32_forward"


def test_pooling_over_more_taps_than_a_byte_numbers_in_16_bits():
    case = pooled((1, 8, 17, 18), (8, 8, 1, 1), (17, 16), (1, 1))
    inputs = make_inputs(case, np.float16, integers=True)
    want, places = wanted(case, inputs)
    same_bits(run(case, np.float16, inputs, "interpreter"), (want.astype(np.float16), places.astype(np.int32)))


REFUSED = {
    "type": ("tensor", np.float32, (4, 8), "conv2d: the rung tensor wants float16 or bfloat16; without"),
    "no tf32": ("async", np.float32, (4, 8), "conv2d: the rung async wants float16, bfloat16, or float32 in the mode"),
    "channels": ("async", np.float16, (4, 8), "conv2d: the rung async wants addresses that are multiples of 16, and"),
    "float32": ("vector", np.float16, (8, 8), "conv2d: the rung vector wants float32; without"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_rung_that_does_not_fit_says_why(why):
    rung, dtype, (c, o), message = REFUSED[why]
    with pytest.raises(ShapeError, match="^" + re.escape(message)):
        started("forward", (1, c, 8, 8), (o, c, 3, 3), rung=rung, dtype=dtype)


# ---- costs -----------------------------------------------------------------------------------------------------------


def counts_of(name, kind, case):
    with interpreter.recording() as launches:
        forced(name, kind, case, make_inputs(case, TYPES[kind], integers=True))
    return launches[0][1].counts


@pytest.mark.parametrize("function", ["forward", "input_grad"])
@pytest.mark.parametrize("name, kind", [("async", "float16"), ("async", "tf32"), ("tensor", "bfloat16")])
def test_tiles_read_what_is_inside_once_for_each_tap(name, kind, function):
    """Without bank conflicts; results are written in whole sectors."""
    (down, columns), size = cuda.ON_CORES[name][1], TYPES[kind].itemsize
    reads, h, w = 16, 8, 2 * down // 8  # two tiles of pixels, one of columns
    c, o = (reads, columns) if function == "forward" else (columns, reads)
    (case,) = [case for case in both((1, c, h, w), (o, c, 3, 3), **SAME) if case.function == function]
    found = counts_of(name, kind, case)
    inside = (3 * h - 2) * (3 * w - 2)  # taps of all pixels that are not padding
    assert found.bytes_loaded["source"] == size * reads * inside
    assert found.bytes_loaded["filters"] == found.sector_bytes_loaded["filters"] == 2 * size * 9 * c * o
    assert found.bytes_stored["result"] == found.sector_bytes_stored["result"] == size * columns * h * w
    assert found.shared_wavefronts <= 1.05 * found.shared_wavefronts_ideal
    products = sum(count for opcode, count in found.instructions.items() if opcode.startswith("mma"))
    steps = 64 // size
    assert products == h * w // 16 * (columns // 8) * 2 * -(-9 * reads // steps)


@pytest.mark.parametrize("kind", TYPES)
def test_weight_gradients_have_no_bank_conflicts(kind):
    found = counts_of("async", kind, row((1, 16, 12, 11), (64, 16, 3, 3), padding=(1, 1)))
    assert found.shared_wavefronts <= 1.05 * found.shared_wavefronts_ideal
    size, inside = TYPES[kind].itemsize, (3 * 12 - 2) * (3 * 11 - 2)
    assert found.bytes_loaded["x"] == size * 16 * inside
    assert found.bytes_loaded["g"] == size * 64 * 12 * 11 * 2  # two tiles of rows


LOOPS = {  # kernels -> instructions of the loop over tiles, at most, beside HMMA
    "forward": (cuda_async.ASYNC["bfloat16", 128, 128, False], 32, 84),
    "input gradient": (cuda_async.ASYNC["bfloat16", 128, 128, True], 32, 94),
    "forward, 128x64": (cuda_async.ASYNC["float16", 128, 64, False], 32, 94),
    "forward, TF32": (cuda_async.ASYNC["tf32", 128, 64, False], 32, 210),  # a rounding is two instructions
    "weight gradient": (cuda_weight_async.ASYNC["bfloat16"], 32, 134),
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
    assert count("LDGSTS") == (4 if "128x128" in kernel.name else 6) and count("BAR") == 1
