"""The rungs of the matrix product, the convolution and its gradients on CUDA, one by one: results, choice, refusals."""

import contextlib
import re
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product

import numpy as np
import pytest

from minigrad_kernels import conv2d, interpreter, matmul
from minigrad_kernels.conv2d import cuda as conv_cuda
from minigrad_kernels.conv2d import cuda_plan
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.interpreter.tensor_map import TensorMap, encode
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.matmul import cuda, cuda_hopper, plan
from minigrad_kernels.toolchain.modes import tf32
from tests import standin
from tests.gpu.small import runs_on

from .cases.conv2d import pooled, rows
from .cases.matmul import around, backwards, repeated, row, spread, transposed
from .kernel_runs import DEVICE, make_inputs, run, same_bits, scratch, wanted
from .rungs import DIRECTIONS, KK, KN, MN, TYPES, exact, result, rounds, unwritten

HALVES = "float16", "bfloat16"


def rung_of(case, name):
    return partial(getattr(import_module(f"minigrad_kernels.{case.family}.cuda"), case.function), rung=name)


# ---- products --------------------------------------------------------------------------------------------------------


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


def any_layout(rows, columns, steps):
    """For a rung that takes all layouts: every edge of its tile, and of its steps of k; batches."""
    edges = zip(around(rows), around(2 * steps), around(columns), (KN, KK, MN), strict=True)
    yield from (row(m, k, n, bias=True, relu=True, layouts=layouts) for m, k, n, layouts in edges)
    yield row(13, 2 * steps + 1, 19, bias=True, relu=True, layouts=(backwards, spread))
    yield row(5, 3, 7, (2, 3), layouts=(inside_out, transposed))
    yield row(12, steps, 12, (2,), layouts=(None, repeated))
    yield from (row(1, 1, 1, bias=True), row(3, 0, 4, bias=True))


def chunks(rows, columns, steps, many, layouts):
    """For a rung that loads `many` neighbours at once: the same in multiples of them, as far as a layout wants it;
    more tiles of k than any rung has stages."""
    yield row(rows + many, 5 * steps + many, columns - many, bias=True, relu=True, layouts=layouts)
    if layouts == KK:
        yield from (row(7, 2 * steps - many, 11, bias=True, layouts=KK), row(9, many, 10, (2,), layouts=KK))
    elif layouts == KN:
        yield row(5, 3 * steps, 2 * many, bias=True, layouts=(padded, upside_down))
        yield row(16, steps, many, (2, 3), layouts=(inside_out, repeated))
    else:
        yield row(2 * many, 1, many, (2,), layouts=MN)


def in_chunks(rows, columns, steps, many):
    """In all layouts, and two of long sums, which are cut into slices."""
    return [
        *(case for layouts in (KK, KN, MN) for case in chunks(rows, columns, steps, many, layouts)),
        row(20, 1024 + many, 4, bias=True, relu=True, layouts=KK),
        row(16, 1040, 8, (2,), bias=True, relu=True, layouts=MN),
    ]


ODD_SLICES = row(5, 777, 3, bias=True)


PRODUCTS = {  # (rung, kind) -> rows
    ("plain", "float32"): [*any_layout(8, 32, 1)],
    ("plain", "float64"): [row(9, 5, 7, bias=True, relu=True, layouts=(backwards, spread))],
    ("tiled", "float32"): [*any_layout(32, 32, 32)],
    ("register_64x64", "float32"): [*any_layout(64, 64, 16), ODD_SLICES],
    ("register", "float32"): [*any_layout(128, 128, 8)],
    ("buffered", "float32"): in_chunks(128, 128, 8, 4),
    **{("tensor", kind): [*any_layout(64, 64, 32), ODD_SLICES] for kind in HALVES},
    **{("async", kind): in_chunks(128, 128, 32, 8) for kind in HALVES},
    ("async", "tf32"): in_chunks(128, 128, 16, 4),
    ("tma", "bfloat16"): [case for case in chunks(128, 256, 64, 8, KK) if len(case.shapes[0]) == 2],
}
PRODUCTS = {key: found for key, found in PRODUCTS.items() if runs_on(DEVICE, key[0])}

# ---- convolutions ----------------------------------------------------------------------------------------------------

SAME = dict(padding=(1, 1))  # with a filter of 3 x 3: as many pixels are made as are read
TWO = dict(stride=(2, 2), padding=(1, 1))


def settings_of(c, o):
    """Strides, paddings, dilations and groups, each different along the two axes, in all directions."""
    return [
        *rows((2, c, 7, 9), (o, c, 3, 3), stride=(2, 1), padding=(1, 0), bias=True),
        *rows((1, c, 8, 9), (o, c, 3, 2), stride=(3, 2), padding=(2, 3), dilation=(1, 2), relu=True),
        *rows((1, 2 * c, 5, 7), (2 * o, c, 4, 5), padding=(3, 3), groups=2, bias=True, relu=True),
        *rows((1, c, 7, 7), (o, c, 2, 2), stride=(3, 3)),  # inputs that nothing reads
        *rows((2, c, 3, 3), (o, c, 1, 1), stride=(2, 2), padding=(1, 0)),
    ]


def edges(columns, step):
    """Around a tile of 128 pixels and so many columns, in forward and input gradient."""
    found = []
    for (h, w), made in zip(((1, 127), (8, 16), (3, 43)), (columns - step, columns, columns + step), strict=True):
        found += rows((1, 2 * step, h, w), (made, 2 * step, 3, 3), bias=True, **SAME)[:1]
        found += rows((1, made, h, w), (2 * step, made, 3, 3), **SAME)[1:2]
    return found


def at(direction, *cases):
    return [case for case in cases if case.function == direction]


FEW = [  # channels for rungs that load them one by one
    *settings_of(1, 5)[:6], *rows((3, 1, 7, 7), (72, 1, 3, 3), bias=True, **SAME),
    *rows((1, 45, 4, 3), (69, 45, 3, 3), bias=True, **SAME),  # filters in two parts
    *(case for c, o in ((2, 3), (3, 8), (5, 7), (16, 4), (33, 16)) for case in rows((2, c, 5, 6), (o, c, 3, 3))),
    *(rows(x, w, **more)[2] for x, w, more in (
        ((600, 1, 1, 1), (2, 1, 1, 1), {}), ((2, 2, 1, 300), (3, 2, 1, 2), {}), ((2, 3, 40, 30), (4, 3, 3, 3), {}),
        ((2, 2, 9, 10), (12, 1, 2, 4), dict(groups=2, stride=(2, 1))),
        ((1, 4, 31, 23), (8, 4, 7, 7), TWO), ((2, 150, 9, 9), (4, 150, 3, 3), {}),
    )),
]  # fmt: skip
SLICED = [
    *rows((1, 40, 4, 5), (40, 40, 3, 3), bias=True, relu=True, **SAME)[:2],
    *rows((1, 160, 5, 5), (160, 160, 3, 3), stride=(2, 2), **SAME)[:2],  # classes of unequal sums
]
WEIGHTS = [  # tiles of 96 rows and 32 or 64 columns; 8 pixels
    ((7, 92, 1, 1), (28, 92, 1, 1), {}), ((8, 96, 1, 1), (32, 96, 1, 1), {}), ((9, 100, 1, 1), (36, 100, 1, 1), {}),
    ((1, 8, 5, 6), (60, 8, 3, 4), {}), ((1, 32, 4, 4), (64, 32, 3, 2), {}), ((2, 20, 4, 3), (68, 20, 3, 3), {}),
    ((3, 4, 9, 9), (132, 4, 5, 5), dict(padding=(2, 2))), ((600, 4, 1, 1), (4, 4, 1, 1), {}),
    ((1, 16, 24, 30), (16, 16, 3, 3), SAME),
]  # fmt: skip
CONVOLUTIONS = {  # (rung, kind) -> rows of all directions that have the rung
    ("plain", "float32"): [
        *settings_of(3, 5), *rows((2, 8, 7, 9), (8, 1, 3, 3), groups=8, bias=True, relu=True, **SAME),
        rows((600, 1, 1, 1), (2, 1, 1, 1))[2],
    ],
    ("plain", "float64"): settings_of(6, 4)[6:9],
    ("tiled", "float32"): at("forward", *settings_of(3, 5)[:6], *rows((1, 5, 7, 7), (17, 5, 3, 3), bias=True)),
    ("register", "float32"): [
        *settings_of(3, 5), *edges(64, 1), *FEW, *rows((1, 23, 3, 3), (17, 23, 5, 5), padding=(2, 2), bias=True)[:2],
    ],
    ("narrow", "float32"): [
        *settings_of(8, 4), *edges(16, 4), *(rows(x, w, **more)[2] for x, w, more in WEIGHTS if w[0] <= 32),
    ],
    ("vector", "float32"): [
        *settings_of(8, 4), *edges(64, 4), *(rows(x, w, **more)[2] for x, w, more in WEIGHTS if w[0] > 32), *SLICED,
    ],
    ("product", "float32"): [
        *rows((3, 5, 6, 7), (6, 5, 1, 1), bias=True, relu=True),
        *rows((1, 400, 3, 3), (20, 400, 1, 1), bias=True),  # in slices
        rows((1, 17, 30, 30), (20, 17, 1, 1))[2],
    ],
    **{
        ("tensor", kind): [
            *settings_of(chunk, 3 * chunk if kind == "tf32" else 2 * chunk), *edges(64, chunk), *SLICED[:2],
            rows((2, 16, 9, 8), (64 + chunk, 16, 3, 3), **SAME)[2], rows((600, 8, 1, 1), (8, 8, 1, 1))[2],
        ]
        for kind, chunk in (("float16", 8), ("bfloat16", 8), ("tf32", 4))
    },
}  # fmt: skip

# ---- results ---------------------------------------------------------------------------------------------------------

RUNGS = {
    f"{rung}-{kind}-{family}-{direction}": (rung, kind, found)
    for family, table in (("product", PRODUCTS), ("convolution", CONVOLUTIONS))
    for (rung, kind), cases in table.items()
    for direction in DIRECTIONS
    if (found := at(direction, *cases))
}
each_rung = pytest.mark.parametrize("rung, kind, cases", RUNGS.values(), ids=RUNGS)
LIKE_FLOAT16 = "bfloat16", "tf32"  # the same text for another type, which takes as long to compile
each_rung_once = pytest.mark.parametrize(
    "rung, kind, cases",
    [
        pytest.param(*of, id=name, marks=[pytest.mark.deep] if of[1] in LIKE_FLOAT16 and of[0] != "tma" else [])
        for name, of in RUNGS.items()
    ],
)
CORNERS = (0, 0, 0, 0), (-1, -1, -1, -1), (0, -1, -1, 0)


def test_every_rung_is_here():
    assert set(PRODUCTS) == {
        (rung, kind) for kind in cuda.LADDERS for rung in cuda.LADDERS[kind] if runs_on(DEVICE, rung)
    }
    assert {rung for rung, _ in CONVOLUTIONS} == set(cuda_plan.RUNGS)
    assert len(RUNGS) == len(PRODUCTS) + 3 * len(CONVOLUTIONS) - 2, "all in each direction, but for tiled"


@each_rung_once
def test_rungs_are_exact_round_once_and_pass_nan(rung, kind, cases):
    """NaN in the last row and column of a product: those stand in for what is outside, where loads are clamped. From
    corners of the first operand of a convolution, and of both in the weight gradient, where one of g also meets the
    zeros of the padding, and one of x that no tap reads goes nowhere. Sums of 16 bits may be asked for in float32."""
    case, function = cases[0], rung_of(cases[0], rung)
    rounds(function, kind, case)
    if case.family == "matmul":
        exact(function, kind, case, residual=True, nan=((0, (-1, 0)), (1, (0, -1)), (2, (-1,))))
    else:
        exact(function, kind, case, residual=case.function == "forward")
        for position in (0, 1) if case.function == "weight_grad" else (0,):
            exact(function, kind, case, nan=[(position, corner) for corner in CORNERS])
    if TYPES[kind].itemsize == 2:
        exact(function, kind, replace(case, outputs=(replace(case.outputs[0], kind="float32"),)))


@pytest.mark.deep
@each_rung
def test_rungs_are_exact_in_every_setting_and_at_every_edge(rung, kind, cases):
    for index, case in enumerate(cases[1:]):
        exact(rung_of(case, rung), kind, case, residual=index % 2 == 0 and case.function == "forward")


@pytest.fixture
def short_grids(monkeypatch):
    """A grid ends at 65535 in z, here at 2."""
    cuda._plan.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(cuda, "MOST", 2)
        yield
    cuda._plan.cache_clear()


@pytest.mark.parametrize("rung, kind", [("plain", "float32"), (None, "float32"), (None, "float16")])
def test_batches_longer_than_a_grid(rung, kind, short_grids):
    """The longer sums are cut into slices."""
    for k, batch, layouts in ((8, (5,), ()), (640, (3, 2), (inside_out, None)), (8, (2, 2, 2), (inside_out, repeated))):
        case = row(8, k, 8, batch, bias=True, layouts=layouts)
        exact(rung_of(case, rung), kind, case)


@pytest.mark.deep
@pytest.mark.parametrize("c, rung", [(1, "register"), (4, "register"), (1, "plain")])
def test_long_sums_lose_little(c, rung):
    """Of 100,000 numbers of one sign; added one by one in float32 they would be off by up to a thousandth."""
    case = rows((10, c, 100, 100), (4, c, 1, 1))[2]
    inputs = [np.abs(array) for array in make_inputs(case, np.float32)]
    np.testing.assert_allclose(result(rung_of(case, rung), "float32", case, inputs), *wanted(case, inputs), rtol=3e-6)


def test_no_images_give_no_results_and_a_weight_gradient_of_zeros():
    for c, kind in ((3, "float32"), (32, "float32"), (3, "float64"), (8, "float16")):
        for case in rows((0, c, 5, 5), (c, c, 1, 1)):
            exact(rung_of(case, None), kind, case)


def test_pooling_follows_in_16_bits():
    for case in (
        pooled((1, 8, 9, 8), (8, 8, 3, 3), (2, 2), (2, 2)),
        pooled((1, 8, 17, 18), (8, 8, 1, 1), (17, 16), (1, 1)),  # more taps than a byte numbers
    ):
        inputs = make_inputs(case, np.float16, integers=True)
        want, places = wanted(case, inputs)
        out, positions = run(case, np.float16, inputs, DEVICE)
        same_bits((out, positions), (want.astype(np.float16), places.astype(positions.dtype)))


# ---- choice ----------------------------------------------------------------------------------------------------------


def multiplied(a, b, rung=None):
    """What would run: names of kernels without that of the family."""
    out = unwritten((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    found = cuda.starts(a, b, None, False, out, scratch("interpreter", []), rung)
    return [kernel.name.removeprefix("matmul_") for kernel, *_ in found]


N, T = (0, 1), (1, 0)
LINES = {  # what a small CNN multiplies: (shape and order of a, of b), kernels of float32, and on tensor cores
    "large layer": ((4096, 512), N, (512, 1024), N, "buffered_128x128_kn", "asynchronous_{}_kn"),
    "large layer, Linear": ((4096, 512), N, (512, 1024), T, "buffered_128x128_kk", "asynchronous_{}_kk"),
    "1x1 convolution": ((8192, 64), N, (64, 64), N, "register_64x64", "asynchronous_{}_kn"),
    "its weight gradient": ((64, 8192), T, (8192, 64), N, "register_64x64 add", "asynchronous_{}_mn add_{}"),
    "three channels in": ((8192, 3), N, (3, 64), N, "register_64x64", "tensor_{}"),
    "head": ((128, 512), N, (512, 10), T, "register_64x64 add", "asynchronous_{}_kk"),
}
LAYERS = {  # what small CNNs have: (x, w, settings) -> rungs forward, of the input gradient, of the weight gradient
    "keras 1": ((64, 1, 28, 28), (32, 1, 3, 3), {}, "register plain register*"),
    "keras 2": ((64, 32, 26, 26), (64, 32, 3, 3), {}, "vector narrow vector*"),
    "resnet 3": ((128, 16, 32, 32), (32, 16, 3, 3), TWO, "narrow narrow narrow*"),
    "deep": ((1, 64, 8, 8), (64, 64, 3, 3), SAME, "vector* vector* vector"),
    "bottleneck": ((64, 64, 16, 16), (64, 64, 1, 1), {}, "product product product*"),
    "depthwise": ((64, 32, 16, 16), (32, 1, 3, 3), dict(groups=32, **SAME), "plain plain plain*"),
    "one image made": ((64, 16, 32, 32), (1, 16, 3, 3), SAME, "plain register register*"),
    "odd": ((64, 33, 8, 8), (65, 33, 3, 3), SAME, "register register* register*"),
}


def test_the_best_rung_is_chosen_by_shape():
    """*: the sums are cut into slices. 16 bytes of TF32 do not travel where 16 of float16 would not."""
    for what, (a, a_order, b, b_order, single, cores) in LINES.items():
        for kind in ("float32", "tf32", "bfloat16"):
            with tf32(kind == "tf32"):
                found = " ".join(multiplied(unwritten(a, a_order, TYPES[kind]), unwritten(b, b_order, TYPES[kind])))
            plain = kind == "float32" or (kind == "tf32" and cores == "tensor_{}")
            want = single if plain else cores.format(kind, kind).replace("add_tf32", "add")
            assert found == want, (what, kind)
    for what, (x, w, settings, names) in LAYERS.items():
        given = {**dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1), **settings}.values()
        out = conv2d.output_shape(x, w, None, *given)[2:]
        plans = [cuda_plan.plan_of(direction, x, w, out, tuple(given), "float32", True) for direction in DIRECTIONS]
        assert " ".join(plan.name + "*" * (plan.slices > 1) for plan in plans) == names, what


def test_places_strides_and_types_that_a_rung_cannot_load_take_a_lower_one():
    b = unwritten((512, 1024))
    assert multiplied(unwritten((4096, 512)), b) == ["buffered_128x128_kn"]
    assert multiplied(unwritten((4096, 512), late=1), b) == ["register_128x128"]
    half = unwritten((64, 64), dtype=np.float16)
    assert multiplied(unwritten((64, 64), dtype=np.float16, late=4), half) == ["tensor_float16"]
    far = np.lib.stride_tricks.as_strided(unwritten((1 << 25,)), (2, 2), (1 << 26, 4))
    assert multiplied(far, unwritten((2, 2))) == ["plain_f32"]
    assert multiplied(unwritten((512, 512), dtype=np.float64), unwritten((512, 8), dtype=np.float64)) == ["plain_f64"]
    a, b = (unwritten((512, 512), order, TYPES["bfloat16"]) for order in (N, T))
    assert multiplied(a, b, "tma") == ["tma_bfloat16"] and multiplied(a, b) == ["asynchronous_bfloat16_kk"]
    a, b = unwritten((32, 128, 512)), np.broadcast_to(unwritten((512, 1024)), (32, 512, 1024))
    ((kernel, grid, *_),) = cuda.starts(a, b.view(interpreter.Array), None, False, unwritten((32, 128, 1024)), None)
    assert (kernel.name, grid) == ("matmul_buffered_128x128_kn", (32, 8, 1)), "a batch that shares b is one product"


def test_cuts_cover_every_sum():
    for k, blocks in product((0, 1, 255, 319, 320, 5000, 131073), (0, 1, 3, 64, 500)):
        for on_cores, multiple in ((False, 16), (True, 32)):
            slices, depth = plan.cut_of(k, blocks, on_cores)
            assert (slices, depth) == (1, k) or (slices - 1) * depth < k <= slices * depth and depth % multiple == 0


def started(direction, x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, rung=None, kind="float32"):
    """[(name of a kernel without that of the family, grid)] of what a convolution would run."""
    settings, dtype = (stride, padding, dilation, groups), TYPES[kind]
    out = conv2d.output_shape(x, w, None, *settings)
    x_there, out_there = (unwritten(shape, CHANNELS_LAST, dtype) for shape in (x, out))
    w_there = unwritten(w, FILTER, dtype)
    first, second, result = {
        "forward": (x_there, w_there, out_there),
        "input_grad": (out_there, w_there, x_there),
        "weight_grad": (out_there, x_there, w_there),
    }[direction]
    with tf32(kind == "tf32"):
        given = direction, first, second, None, False, settings, result, scratch("interpreter", []), rung
        found = list(conv_cuda.starts(*given))
    return [(kernel.name.removeprefix("conv2d_"), grid) for kernel, grid, *_ in found]


TENSOR = "tensor_{}_forward", "tensor_{}_input_grad", "weight_tensor_{}"


def test_types_and_places_choose_among_convolutions():
    layer = (64, 32, 26, 26), (64, 32, 3, 3)
    for direction, name in zip(DIRECTIONS, TENSOR, strict=True):
        for kind in ("tf32", "float16"):
            assert started(direction, *layer, kind=kind)[0][0] == name.format(kind)
        assert "plain" in started(direction, *layer, kind="float64")[0][0]
        late = cuda_plan.plan_of(direction, *layer, (24, 24), ((1, 1), (0, 0), (1, 1), 1), "float32", False)
        assert late.name == "register", "places where 128-bit loads cannot go"
    assert started("forward", (64, 1, 28, 28), (32, 1, 3, 3), kind="tf32")[0][0] == "register_forward"
    names = [name for name, _ in started("forward", (32, 512, 4, 4), (512, 512, 3, 3), **SAME, kind="bfloat16")]
    assert names == ["tensor_bfloat16_forward", "matmul_add_bfloat16"]
    strides = (1, 4, 900, 900), (8, 4, 3, 3)  # that make more classes than a grid has
    assert started("input_grad", *strides, (300, 300))[0][0] == "plain_input_grad_f32"


def test_launchers_take_16_bits_and_widen_what_tensor_cores_do_not_suit():
    for c, o in ((8, 8), (3, 7)):
        for case, name in zip(rows((1, c, 5, 6), (o, c, 3, 3)), TENSOR, strict=True):
            with interpreter.recording() as launches:
                exact(getattr(conv2d, case.function), "float16", case, device="interpreter")
            names = [name for name, _ in launches]
            assert names == ["conv2d_" + name.format("float16")] if c == 8 else "tensor" not in " ".join(names)


# ---- refusals --------------------------------------------------------------------------------------------------------

PRODUCTS_REFUSED = {  # shapes of a and b, type, rung -> rungs that fit
    ((8, 8), (8, 8), "float32", "fast"): "plain, tiled, register_64x64, register, buffered",
    ((8, 8), (8, 9), "float32", "buffered"): "plain, tiled, register_64x64, register",
    ((8, 8), (8, 9), "float16", "async"): "tensor",
    ((1, 1), (1, 4194241), "float32", "register_64x64"): "plain",
    ((8, 8), (8, 8), "bfloat16", "tma"): "async, tensor",
}
X, W = (1, 4, 8, 8), (8, 4, 3, 3)
CONVOLUTIONS_REFUSED = [  # arguments of started -> rungs that fit
    (("forward", X, W), dict(rung="register", kind="float64"), "plain"),
    (("forward", X, W), dict(rung="tensor"), "plain, tiled, register, narrow, vector"),
    (("input_grad", X, (6, 4, 3, 3)), dict(rung="vector"), "plain, register"),
    (("forward", (1, 4, 8, 20), (8, 4, 1, 17)), dict(rung="vector"), "plain, tiled"),
    (("forward", X, (8, 2, 3, 3)), dict(rung="tiled", groups=2), "plain, register"),
    (("forward", X, (8, 4, 1, 1)), dict(rung="product", stride=(1, 2)), "plain, tiled, register, narrow, vector"),
]
FAR = [  # direction, x, stride -> message; w has one tap
    ("forward", (1 << 11, 1, 1 << 10, 1 << 10), (1, 1), ": the elements of x takes 2147483648, wants less than 21474"),
    ("weight_grad", (1, 1, 4, 4), (1 << 29, 1), " weight_grad: a walk over x takes 536870917, wants less than 268435"),
]


def test_a_rung_that_does_not_fit_and_sizes_beyond_32_bits_say_why():
    for (a, b, kind, name), fitting in PRODUCTS_REFUSED.items():
        with pytest.raises(
            ShapeError, match=f"^matmul: rung is '{name}', wants one that takes such arrays: {fitting}$"
        ):
            multiplied(unwritten(a, dtype=TYPES[kind]), unwritten(b, dtype=TYPES[kind]), name)
    many = np.broadcast_to(unwritten((1, 1)), (1 << 31, 1)).view(interpreter.Array)
    with pytest.raises(ShapeError, match="matmul: got 2147483648 rows, 1 columns and sums of 1, wants less than"):
        list(cuda.starts(many, unwritten((1, 1)), None, False, many, None))
    with pytest.raises(KindError, match="^matmul: out has type float64, wants float16 or float32"):
        matmul.forward(
            *(unwritten((2, 2), dtype=kind) for kind in "ee"), None, False, unwritten((2, 2), dtype="d"), None
        )
    for arguments, others, fitting in CONVOLUTIONS_REFUSED:
        with pytest.raises(ShapeError, match=f"^conv2d.*: rung is .*, wants one that takes such arrays: {fitting}$"):
            started(*arguments, **others)
    for direction, x, stride, message in FAR:
        with pytest.raises(ShapeError, match="^conv2d" + re.escape(message)):
            cuda_plan.plan_of(direction, x, (1,) * 4, x[2:], (stride, (0, 0), (1, 1), 1), "float32", True)


# ---- the rung for Hopper: what its copies of boxes read, and their tables on a GPU -----------------------------------

BF16 = TYPES["bfloat16"]
ROWS, COLUMNS, STEPS = 64, 16, 6 * 64  # more tiles of k than there are stages


def operands():
    """a, and b turned: both lie along k."""
    rng = np.random.default_rng(0)
    return (rng.integers(-3, 4, shape).astype(BF16) for shape in ((ROWS, STEPS), (COLUMNS, STEPS)))


def test_layouts_that_the_copy_engine_reads_run_and_others_are_refused():
    memory = interpreter.array(np.zeros(4096, BF16))[2048:]
    for shape, strides, fits in (  # lines with gaps; one line; a batch; lines that go backwards; that overlap
        ((16, 8), (32, 1), True), ((1, 8), (0, 1), True), ((3, 16, 8), (128, 8, 1), False), ((16, 8), (-8, 1), False),
        ((16, 32), (8, 1), False), ((16, 8), (0, 1), False),
    ):  # fmt: skip
        a = np.lib.stride_tricks.as_strided(memory, shape, [2 * step for step in strides], subok=True)
        b = interpreter.array(np.ones((*shape[:-2], 8, shape[-1]), BF16)).swapaxes(-1, -2)
        out = interpreter.empty((*shape[:-1], 8), BF16)
        with contextlib.nullcontext() if fits else pytest.raises(ShapeError, match="^matmul: rung is 'tma', wants"):
            cuda.forward(a, b, None, False, out, None, "tma")
        assert not fits or not np.asarray(out).any()


# ---- maps on a GPU ---------------------------------------------------------------------------------------------------


@pytest.fixture
def driver(monkeypatch):
    """What the driver's function is called with; it makes the interpreter's maps of that."""
    calls = []

    def encode_tiled(place, kind, rank, address, sizes, strides, box, steps, *modes):
        assert place.value % 64 == 0 and rank == 2 and list(steps) == [1, 1]
        calls.append((kind, tuple(sizes), tuple(strides), tuple(box), modes))
        words = encode(TensorMap(address.value, sizes[1], sizes[0], strides[0], box[1], box[0], 2))
        cuda_hopper.ctypes.memmove(place, words.ctypes.data, words.nbytes)
        return 0

    cuda_hopper._encoded.cache_clear()
    monkeypatch.setattr(cuda_hopper, "_driver", lambda: encode_tiled)
    yield calls
    cuda_hopper._encoded.cache_clear()


def test_a_captured_product_keeps_its_maps_and_reads_its_operands_anew(driver):
    """The driver is asked in its own terms: columns first; bfloat16; no interleaving, 128 bytes turned, 256 bytes
    promoted to the second cache, zeros outside."""
    with standin.installed(devices=1) as machine:
        import cupy

        a, b = (cupy.asarray(x) for x in operands())
        b, out = b.T, cupy.zeros((ROWS, COLUMNS), BF16)
        cuda.forward(a, b, None, False, out, None, "tma")
        want = out.get()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            cuda.forward(a, b, None, False, out, None, "tma")
            graph = stream.end_capture()
            a[...] = cupy.asarray(2 * a.get())
            graph.launch(stream)
            stream.synchronize()
        np.testing.assert_array_equal(out.get(), 2 * want)
    modes = 9, (STEPS, ROWS), (2 * STEPS,), (64, 128), (0, 3, 3, 0)
    assert machine.launches and driver == [modes, (9, (STEPS, COLUMNS), (2 * STEPS,), (64, 256), (0, 3, 3, 0))], (
        "made once"
    )


def test_a_driver_that_refuses(monkeypatch):
    map_ = TensorMap(1 << 20, 8, 8, 16, 64, 64, 2)
    monkeypatch.setattr(cuda_hopper, "_driver", lambda: lambda *arguments: 1)
    with pytest.raises(StateError, match="^tensor map: the driver refuses TensorMap.* with error 1; ask for a lower"):
        cuda_hopper._encoded(map_)
