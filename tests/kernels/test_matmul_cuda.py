"""The rungs of the matrix product on CUDA, one by one: results at the edges of their tiles, choice and refusals."""

import contextlib
import re
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import interpreter, matmul
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.matmul import cuda, plan
from minigrad_kernels.toolchain.modes import tf32
from tests.gpu.small import runs_on

from .cases import Output
from .cases.matmul import around, backwards, repeated, row, spread, transposed
from .kernel_runs import DEVICE
from .rungs import TYPES, exact, rounds, unwritten


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


def single(case):
    """The row with an output of float32."""
    return replace(case, outputs=(Output(case.outputs[0].shape, kind="float32"),))


KK, KN, MN = (None, transposed), (None, None), (transposed, None)  # whether a and b lie along k, or along m and n


def any_layout(rows, columns, steps):
    """For a rung that takes all layouts: every edge of its tile, and of its steps of k; batches."""
    edges = zip(around(rows), around(2 * steps), around(columns), (KN, KK, MN), strict=True)
    yield from (row(m, k, n, bias=True, layouts=layouts) for m, k, n, layouts in edges)
    yield row(13, 2 * steps + 1, 19, bias=True, relu=True, layouts=(backwards, spread))
    yield row(5, 3, 7, (2, 3), layouts=(inside_out, transposed))
    yield row(12, steps, 12, (2,), layouts=(None, repeated))
    yield from (row(1, 1, 1, bias=True), row(3, 0, 4, bias=True))


def chunks(rows, columns, steps, many, layouts):
    """For a rung that loads `many` neighbours at once: the same in multiples of them, as far as a layout wants it;
    more tiles of k than any rung has stages."""
    yield row(rows + many, 5 * steps + many, columns - many, bias=True, relu=True, layouts=layouts)
    yield single(row(columns - many, steps, rows + many, bias=True, layouts=layouts))
    if layouts == KK:
        yield from (row(7, 2 * steps - many, 11, bias=True, layouts=KK), row(9, many, 10, (2,), layouts=KK))
        yield row(3, 0, 4, bias=True, layouts=KK)  # without terms all lie along k
    elif layouts == KN:
        yield row(5, 3 * steps, 2 * many, bias=True, layouts=(padded, upside_down))
        yield row(16, steps, many, (2, 3), layouts=(inside_out, repeated))
    else:
        yield row(2 * many, 1, many, (2,), layouts=MN)


def slices(kind):
    chunk = 4 if kind in ("float32", "tf32") else 8
    yield row(20, 1024 + chunk, 4, bias=True, layouts=KK)
    yield single(row(16, 1040, 8, (2,), bias=True, relu=True, layouts=MN))
    if kind != "tf32":
        yield row(5, 777, 3, bias=True)


ROWS = {  # (rung, kind) -> rows
    ("plain", "float32"): [*any_layout(8, 32, 1)],
    ("plain", "float64"): [row(9, 5, 7, bias=True, relu=True, layouts=(backwards, spread))],
    ("tiled", "float32"): [*any_layout(32, 32, 32)],
    ("register_64x64", "float32"): [*any_layout(64, 64, 16)],
    ("register", "float32"): [*any_layout(128, 128, 8)],
    ("buffered", "float32"): [case for layouts in (KK, KN, MN) for case in chunks(128, 128, 8, 4, layouts)],
    **{("tensor", kind): [*any_layout(64, 64, 32)] for kind in ("float16", "bfloat16")},
    **{
        ("async", kind): [
            case
            for layouts in (KK, KN, MN)
            for case in chunks(128, 128, *((16, 4) if kind == "tf32" else (32, 8)), layouts)
        ]
        for kind in ("float16", "bfloat16", "tf32")
    },
    **{("split", kind): [*slices(kind)] for kind in ("float32", "float16", "bfloat16", "tf32")},
    ("tma", "bfloat16"): [case for case in chunks(128, 256, 64, 8, KK) if len(case.shapes[0]) == 2],
}
ROWS = {key: rows for key, rows in ROWS.items() if runs_on(DEVICE, key[0])}
each_rung = pytest.mark.parametrize("rung, kind", ROWS)


def rung_of(name):
    return partial(cuda.forward, rung=name)


def mode(kind):
    return tf32() if kind == "tf32" else contextlib.nullcontext()


def test_every_rung_is_here():
    ladders = {(rung, kind) for kind, ladder in cuda.LADDERS.items() for rung in ladder if runs_on(DEVICE, rung)}
    assert set(ROWS) == ladders
    for kind in ("float32", "tf32", "bfloat16"):
        with mode(kind):
            assert cuda.rungs_of(unwritten((1, 1), dtype=TYPES[kind])) is cuda.LADDERS[kind]


@each_rung
def test_rungs_are_exact_round_once_and_pass_nan(rung, kind):
    """A NaN in the last row and column: those stand in for what is outside, where loads are clamped."""
    first = ROWS[rung, kind][0]
    rounds(rung_of(rung), kind, first)
    case = replace(first, params={"relu": True})
    exact(rung_of(rung), kind, case, residual=True, nan=((0, (-1, 0)), (1, (0, -1)), (2, (-1,))))


@pytest.mark.deep
@each_rung
def test_rungs_are_exact_at_every_edge(rung, kind):
    for index, case in enumerate(ROWS[rung, kind]):
        residual = index % 2 and case.outputs[0].kind == "float"
        exact(rung_of(rung), kind, case, residual)


@pytest.mark.parametrize("rung, kind", [("plain", "float32"), (None, "float16")])
def test_batches_longer_than_a_grid(rung, kind, monkeypatch):
    """A grid ends at 65535 in z, here at 2."""
    monkeypatch.setattr(plan, "MOST", 2)
    for k, batch, layouts in ((8, (5,), ()), (640, (3, 2), (inside_out, None)), (8, (2, 2, 2), (inside_out, repeated))):
        exact(rung_of(rung), kind, row(8, k, 8, batch, bias=True, layouts=layouts))


def test_what_is_too_large_for_float16_becomes_infinite_and_is_kept_in_float32():
    a = interpreter.array(np.full((16, 16), 100, np.float16))
    for kind, value in ((np.float16, np.inf), (np.float32, 160000)):
        out = interpreter.empty((16, 16), kind)
        with interpreter.recording() as launches:
            matmul.forward(a, a, None, False, out, lambda n, like: None)
        assert [name for name, _ in launches] == ["matmul_asynchronous_float16_kn"] and (np.asarray(out) == value).all()


# ---- choice ----------------------------------------------------------------------------------------------------------


def started(a, b, rung=None):
    """What would run: names of kernels without that of the family."""
    out = unwritten((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    space = unwritten((matmul.workspace(a, b),), dtype=np.uint8)
    return [kernel.name.removeprefix("matmul_") for kernel, *_ in cuda.starts(a, b, None, False, out, space, rung)]


N, T = (0, 1), (1, 0)
CHOICE = {  # what a small CNN multiplies: (shape and order of a, of b), kernels of float32, and on tensor cores
    "large layer": ((4096, 512), N, (512, 1024), N, ["buffered_128x128_kn"], ["asynchronous_{}_kn"]),
    "large layer, Linear": ((4096, 512), N, (512, 1024), T, ["buffered_128x128_kk"], ["asynchronous_{}_kk"]),
    "large layer, odd": ((4095, 511), N, (511, 1023), N, ["register_128x128"], ["tensor_{}"]),
    "both along the other axis": ((4096, 1024), T, (1024, 1024), T, ["register_128x128"], ["tensor_{}"]),
    "1x1 convolution": ((8192, 64), N, (64, 64), N, ["register_64x64"], ["asynchronous_{}_kn"]),
    "its weight gradient": ((64, 8192), T, (8192, 64), N, ["register_64x64", "add"], ["asynchronous_{}_mn", "add_{}"]),
    "three channels in": ((8192, 3), N, (3, 64), N, ["register_64x64"], ["tensor_{}"]),
    "head": ((128, 512), N, (512, 10), T, ["register_64x64", "add"], ["asynchronous_{}_kk"]),
    "head, weight gradient": ((10, 64), T, (64, 512), N, ["register_64x64"], ["tensor_{}"]),
    "weight gradients of groups": ((8, 64, 2048), None, (8, 2048, 64), None, ["register_64x64", "add"], None),
    "tiny": ((3, 4), N, (4, 5), N, ["register_64x64"], ["tensor_{}"]),
}


def test_the_best_rung_is_chosen_by_shape():
    for what, (a, a_order, b, b_order, single, cores) in CHOICE.items():
        for kind in ("float32", "tf32", "bfloat16"):
            with mode(kind):
                found = started(unwritten(a, a_order, TYPES[kind]), unwritten(b, b_order, TYPES[kind]))
            if kind == "float32" or (kind == "tf32" and cores == ["tensor_{}"]):  # 16 bytes of TF32 do not travel
                assert found == single, what
            elif cores:
                assert [name.removesuffix("_" + kind) for name in found] == [
                    name.format(kind).removesuffix("_" + kind) for name in cores
                ], what


def test_places_strides_and_types_that_a_rung_cannot_load_take_a_lower_one():
    b = unwritten((512, 1024))
    assert started(unwritten((4096, 512)), b) == ["buffered_128x128_kn"]
    assert started(unwritten((4096, 512), late=1), b) == ["register_128x128"]
    half = unwritten((64, 64), dtype=np.float16)
    assert started(unwritten((64, 64), dtype=np.float16, late=4), half) == ["tensor_float16"]
    far = np.lib.stride_tricks.as_strided(unwritten((1 << 25,)), (2, 2), (1 << 26, 4))
    assert started(far, unwritten((2, 2))) == ["plain_f32"]
    with pytest.raises(ShapeError, match="rung register wants strides of less than 16777216 elements"):
        started(far, unwritten((2, 2)), "register")
    assert started(unwritten((512, 512), dtype=np.float64), unwritten((512, 8), dtype=np.float64)) == ["plain_f64"]


def test_the_rung_of_hopper_runs_where_asked_for_alone():
    a, b = (unwritten((512, 512), order, TYPES["bfloat16"]) for order in (N, T))
    assert started(a, b, "tma") == ["tma_bfloat16"] and started(a, b) == ["asynchronous_bfloat16_kk"]
    with pytest.raises(ShapeError, match="^matmul: the rung tma wants both a and b to lie along K"):
        started(a, a, "tma")


def test_a_batch_that_shares_b_is_one_product():
    a, b = unwritten((32, 128, 512)), np.broadcast_to(unwritten((512, 1024)), (32, 512, 1024))
    ((kernel, grid, *_),) = cuda.starts(a, b.view(interpreter.Array), None, False, unwritten((32, 128, 1024)), None)
    assert (kernel.name, grid) == ("matmul_buffered_128x128_kn", (32, 8, 1))


def test_cuts_cover_every_sum():
    for m, n, k, count in product((1, 16, 64, 500), (1, 10, 64, 512), (0, 1, 255, 319, 320, 5000, 131073), (1, 3, 64)):
        tile, slices, depth = plan.cut_of(m, n, k, count)
        assert tile in cuda.BEST
        assert (slices, depth) == (1, k) or (slices - 1) * depth < k <= slices * depth and depth % 16 == 0


AT = "a and b at addresses that are multiples of 16, each with a stride of one element along one axis whose size is a"
REFUSED = {  # shapes of a and b, type, rung -> message
    ((8, 8), (8, 8), "float32", "fast"): "rung is 'fast', wants one of plain, tiled, register_64x64",
    ((8, 8), (8, 8), "float64", "tiled"): "rung is 'tiled', wants one of plain",
    ((8, 8), (8, 9), "float32", "buffered"): f"the rung buffered wants {AT} multiple of 4,",
    ((8, 8), (8, 9), "float16", "async"): f"the rung async wants {AT} multiple of 8,",
    ((8, 319), (319, 8), "float32", "split"): "the rung split wants long sums for few results, got 319 terms",
    ((1, 1), (1, 4194241), "float32", "register_64x64"): "the rung register_64x64 wants at most 4194240",
}


def test_a_rung_or_a_type_that_does_not_fit_says_why():
    for (a, b, kind, name), message in REFUSED.items():
        with pytest.raises(ShapeError, match="^matmul: " + re.escape(message)):
            started(unwritten(a, dtype=TYPES[kind]), unwritten(b, dtype=TYPES[kind]), name)
    ones = np.broadcast_to(unwritten((1, 1)), (1 << 31, 1)).view(interpreter.Array)
    with pytest.raises(ShapeError, match="matmul: got 2147483648 rows, 1 columns and sums of 1, wants less than"):
        matmul.workspace(ones, unwritten((1, 1)))
    for kinds, message in (("eed", "out has type float64, wants float16 or float32"), ("ffe", "out has type float16")):
        a, b, out = (unwritten((2, 2), dtype=kind) for kind in kinds)
        with pytest.raises(KindError, match="^matmul: " + message):
            matmul.forward(a, b, None, False, out, None)
