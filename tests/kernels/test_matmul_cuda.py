"""The rungs of the matrix product, one by one: results at every edge of their tiles, choice, and refusals."""

import dataclasses
import re
from functools import partial
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import interpreter, matmul
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.matmul import cuda, plan

from .cases.matmul import around, backwards, repeated, row, spread, transposed
from .kernel_runs import DEVICE, make_inputs, run, same_bits, wanted, within_rounding


def padded(array):
    """Rows with gaps between them that keep 128-bit loads possible."""
    room = np.zeros((*array.shape[:-1], array.shape[-1] + 8), array.dtype)
    room[..., : array.shape[-1]] = array
    return room[..., : array.shape[-1]]


def upside_down(array):
    """Negative strides from row to row."""
    return np.ascontiguousarray(array[..., ::-1, :])[..., ::-1, :]


def inside_out(array):
    """The two axes of a batch lie the other way round in memory, so no single stride leads along both."""
    return np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1)


LAYOUTS = list(product((None, transposed), repeat=2))
WILD = list(product((backwards, spread, transposed), repeat=2))


def edges(name):
    """(rows, steps, columns) around the tile of a rung. Those that load 128 bits want multiples of 4 along memory."""
    rows, columns = cuda.RUNGS[name].tile
    steps = {"plain": 1, "tiled": 32}.get(name, 16 if name.startswith("register_") else 8)  # of k in a tile
    if name == "buffered":
        sizes = zip(
            (rows - 4, rows, rows + 4), (2 * steps - 4, steps, steps + 4), (columns, columns + 4, 4), strict=True
        )
        return [*sizes, (4, 4, 4)]
    return [*zip(around(rows), around(2 * steps), around(columns), strict=True), (1, 1, 1)]


def takes(name, layouts):
    """Whether a rung has a kernel for operands that lie so."""
    kernels, turned = cuda.RUNGS[name].kernels, [layout is transposed for layout in layouts]
    return None in kernels or (not turned[0], turned[1]) in kernels


def rows_of(name):
    """(rung, row of the table): every edge; every layout; batches; no terms at all."""
    *_, (m, k, n), _ = edges(name)
    wide = name == "buffered"
    found = [row(*sizes, bias=True) for sizes in edges(name)]
    found += [row(m, k, n, layouts=layouts) for layouts in LAYOUTS[1:] if takes(name, layouts)]
    found += [row(m, 0, n, bias=True)] * takes(name, (None, transposed))  # without terms all lie along k
    found += [row(12, k, 12, (2,), layouts=(None, repeated))]
    if wide:
        found += [row(m, 3 * k, n, layouts=layouts) for layouts in ((padded, upside_down), (upside_down, padded))]
        more = row(12, 13, 20, bias=True, layouts=(transposed, None)), row(101, 20, 103, layouts=(None, transposed))
        found += [case for case in more if takes(name, case.layouts)]
    else:
        found += [row(m, 2 * k + 1, n, layouts=layouts) for layouts in WILD[:: 1 if name == "plain" else 3]]
        found += [row(13, 17, 19, bias=True), row(5, 3, 7, (2, 3), layouts=(inside_out, None))]
    return [(name, case) for case in found]


TILES = [name for name in cuda.RUNGS if name != "split"]
SPLIT = [("split", row(m, k, n, batch, bias=True)) for m, k, n, batch in (
    (20, 515, 3, ()), (3, 389, 20, (2,)), (17, 512, 20, ()), (20, 513, 17, ()), (4, 400, 4, (2, 3)),
)]  # fmt: skip
ROWS = [pair for name in TILES for pair in rows_of(name)] + SPLIT
named = {"ids": lambda value: str(value).removeprefix("matmul.forward ")}
each_row = pytest.mark.parametrize("name, case", ROWS, **named)


def forced(name, case, dtype, inputs):
    """Outputs of one rung, which must be the one that runs."""
    return run(case, dtype, inputs, DEVICE, partial(cuda.forward, rung=name))


@each_row
def test_rungs_are_exact_on_small_integers(name, case):
    inputs = make_inputs(case, np.float32, integers=True)
    same_bits(forced(name, case, np.float32, inputs), wanted(case, inputs))


@pytest.mark.parametrize("name", TILES + ["split"])
def test_rungs_round_as_they_should_the_same_twice_and_nan_passes(name):
    """NaN reaches its row or column, also from the last ones, which stand in for those outside where loads are clamped,
    and passes ReLU."""
    case = next(case for rung, case in ROWS if rung == name)
    inputs = make_inputs(case, np.float32)
    results = forced(name, case, np.float32, inputs)
    within_rounding(case, np.float32, inputs, results)
    same_bits(results, forced(name, case, np.float32, inputs))
    case = dataclasses.replace(case, params={"relu": True})
    for position, place in ((0, (-1, 0)), (0, (0, -1)), (1, (-1, -1)), (1, (0, 0)), (2, (-1,))):
        inputs = make_inputs(case, np.float32, integers=True)
        inputs[position][place] = np.nan
        (got,), (want,) = forced(name, case, np.float32, inputs), wanted(case, inputs)
        assert np.isnan(want).any() and not np.isnan(want).all()
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["plain", "register_64x64", "buffered", "split", None])
def test_batches_longer_than_a_grid(name, monkeypatch):
    """A grid ends at 65535 in z, here at 2."""
    monkeypatch.setattr(plan, "MOST", 2)
    for batch, layouts in (((5,), ()), ((3, 2), (inside_out, None)), ((2, 2, 2), (inside_out, repeated))):
        case = row(4, 400 if name == "split" else 8, 4, batch, bias=True, layouts=layouts)
        inputs = make_inputs(case, np.float32, integers=True)
        same_bits(forced(name, case, np.float32, inputs), wanted(case, inputs))


# ---- choice ----------------------------------------------------------------------------------------------------------


def unwritten(shape, layout=None, dtype=np.float32):
    """Memory that only its shape and place are asked of."""
    array = np.empty(shape[::-1] if layout == "T" else shape, dtype).view(interpreter.Array)
    return array.T if layout == "T" else array


def started(a, b, rung=None):
    """What would run: names of kernels without that of the family."""
    out = unwritten((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    workspace = unwritten((matmul.workspace(a, b),), dtype=np.uint8)
    return [kernel.name.removeprefix("matmul_") for kernel, *_ in cuda.starts(a, b, None, False, out, workspace, rung)]


CHOICE = {  # what a small CNN multiplies: (shape of a, its layout, shape of b, its layout) -> kernels
    "large layer": (((4096, 512), "N", (512, 1024), "N"), ["buffered_128x128_kn"]),
    "large layer, Linear": (((4096, 512), "N", (512, 1024), "T"), ["buffered_128x128_kk"]),
    "large layer, odd": (((4095, 511), "N", (511, 1023), "N"), ["register_128x128"]),
    "1x1 convolution": (((8192, 64), "N", (64, 64), "N"), ["register_64x64"]),
    "1x1 convolution, three channels in": (((8192, 3), "N", (3, 64), "N"), ["register_64x64"]),
    "1x1 convolution, few channels out": (((8192, 64), "N", (64, 16), "N"), ["register_64x64"]),
    "its weight gradient": (((64, 8192), "T", (8192, 64), "N"), ["register_64x64", "add"]),
    "head": (((128, 512), "N", (512, 10), "T"), ["register_64x64", "add"]),
    "head, weight gradient": (((10, 1024), "T", (1024, 512), "N"), ["register_64x64", "add"]),
    "head, weight gradient, small batch": (((10, 64), "T", (64, 512), "N"), ["register_64x64"]),
    "head, input gradient": (((128, 10), "N", (10, 512), "N"), ["register_64x64"]),
    "weight gradient of each group": (
        ((8, 64, 2048), "N", (8, 2048, 64), "N"),
        ["register_64x64", "add"],
    ),
    "hidden layer": (((128, 256), "N", (256, 128), "T"), ["register_64x64"]),
    "tiny": (((3, 4), "N", (4, 5), "N"), ["register_64x64"]),
    "both along the other axis": (((4096, 1024), "T", (1024, 1024), "T"), ["register_128x128"]),
}


@pytest.mark.parametrize("what", CHOICE)
def test_the_best_rung_is_chosen_by_shape(what):
    (a_shape, a_layout, b_shape, b_layout), names = CHOICE[what]
    assert started(unwritten(a_shape, a_layout), unwritten(b_shape, b_layout)) == names


def test_float64_runs_plain():
    a, b = unwritten((512, 512), dtype=np.float64), unwritten((512, 8), dtype=np.float64)
    assert started(a, b) == ["plain_f64"] and matmul.workspace(a, b) == 0


def test_a_place_that_is_no_multiple_of_16_bytes_takes_the_scalar_rung():
    memory = unwritten((4096 * 512 + 1,))
    b = unwritten((512, 1024))
    assert started(memory[:-1].reshape(4096, 512), b) == ["buffered_128x128_kn"]
    assert started(memory[1:].reshape(4096, 512), b) == ["register_128x128"]


def test_a_batch_that_shares_b_is_one_product():
    a, b = unwritten((32, 128, 512)), np.broadcast_to(unwritten((512, 1024)), (32, 512, 1024))
    out = unwritten((32, 128, 1024))
    ((kernel, grid, *_),) = cuda.starts(a, b.view(interpreter.Array), None, False, out, None)
    assert (kernel.name, grid) == ("matmul_buffered_128x128_kn", (32, 8, 1))


def test_cuts_cover_every_sum():
    for m, n, k, count in product((1, 16, 64, 500), (1, 10, 64, 512), (0, 1, 255, 319, 320, 5000, 131073), (1, 3, 64)):
        tile, slices, depth = plan.cut_of(m, n, k, count)
        assert tile in cuda.BEST
        assert (slices, depth) == (1, k) or (slices - 1) * depth < k <= slices * depth and depth % 16 == 0


F64, F32, F16 = np.float64, np.float32, np.float16
AT = "a and b at addresses that are multiples of 16, each with a stride of one element along one axis whose size is a"
LONG = "long sums for few results, got"
REFUSED = {  # shapes of a and b, type, rung, message
    "name": ((8, 8), (8, 8), F32, "fast", "rung is 'fast', wants one of plain, tiled, register_64x64"),
    "type": ((8, 8), (8, 8), F64, "tiled", "rung is 'tiled', wants one of plain"),
    "columns": ((8, 8), (8, 9), F32, "buffered", f"the rung buffered wants {AT} multiple of 4,"),
    "short": ((8, 319), (319, 8), F32, "split", f"the rung split wants {LONG} 319 terms for 8 x 8 results"),
    "wide": ((1, 1), (1, 4194241), F32, "register_64x64", "the rung register_64x64 wants at most 4194240"),
    "name of 16 bits": ((8, 8), (8, 8), F16, "buffered", "rung is 'buffered', wants one of tensor, async, split"),
    "columns of 16 bits": ((8, 8), (8, 9), F16, "async", f"the rung async wants {AT} multiple of 8,"),
    "steps of 16 bits": ((8, 12), (12, 8), F16, "async", f"the rung async wants {AT}"),
    "short of 16 bits": ((8, 512), (512, 8), F16, "split", f"the rung split wants {LONG} 512 terms"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_rung_that_does_not_fit_says_why(why):
    a_shape, b_shape, dtype, name, message = REFUSED[why]
    with pytest.raises(ShapeError, match="^matmul: " + re.escape(message)):
        started(unwritten(a_shape, dtype=dtype), unwritten(b_shape, dtype=dtype), name)


def test_far_strides_run_plain_and_other_rungs_refuse_them():
    a = np.lib.stride_tricks.as_strided(unwritten((1 << 25,)), (2, 2), (1 << 26, 4))
    assert started(a, unwritten((2, 2))) == ["plain_f32"]
    with pytest.raises(ShapeError, match="rung register wants strides of less than 16777216 elements"):
        started(a, unwritten((2, 2)), "register")


def test_sizes_beyond_32_bits_are_refused():
    ones = np.broadcast_to(unwritten((1, 1)), (1 << 31, 1)).view(interpreter.Array)
    with pytest.raises(ShapeError, match="matmul: got 2147483648 rows, 1 columns and sums of 1, wants less than"):
        matmul.workspace(ones, unwritten((1, 1)))
