"""The rungs of the convolution and of its gradients on CUDA, one by one: results, choice and refusals."""

import contextlib
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from minigrad_kernels import conv2d, interpreter
from minigrad_kernels.conv2d import cuda, cuda_plan
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.toolchain.modes import tf32

from .cases import Output
from .cases.conv2d import pooled, rows
from .kernel_runs import DEVICE, make_inputs, run, same_bits, wanted
from .rungs import TYPES, exact, result, rounds, spreads_nan, unwritten

DIRECTIONS = "forward", "input_grad", "weight_grad"
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


POINTS = [
    *rows((3, 5, 6, 7), (6, 5, 1, 1), bias=True, relu=True),
    *rows((1, 400, 3, 3), (20, 400, 1, 1), bias=True),  # in slices
    *rows((1, 17, 30, 30), (20, 17, 1, 1))[2:],
]
FEW = [  # channels for rungs that load them one by one
    *settings_of(1, 5)[:6], *rows((3, 1, 7, 7), (72, 1, 3, 3), bias=True, **SAME),
    *rows((1, 45, 4, 3), (69, 45, 3, 3), bias=True, **SAME),  # filters in two parts
    *(case for c, o in ((2, 3), (3, 8), (5, 7), (16, 4), (33, 16)) for case in rows((2, c, 5, 6), (o, c, 3, 3))),
    *at("weight_grad", *(case for x, w, more in (
        ((600, 1, 1, 1), (2, 1, 1, 1), {}), ((2, 2, 1, 300), (3, 2, 1, 2), {}), ((2, 3, 40, 30), (4, 3, 3, 3), {}),
        ((2, 2, 9, 10), (12, 1, 2, 4), dict(groups=2, stride=(2, 1))),
        ((1, 4, 31, 23), (8, 4, 7, 7), TWO), ((2, 150, 9, 9), (4, 150, 3, 3), {}),
    ) for case in rows(x, w, **more))),
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
ROWS = {  # (rung, kind) -> rows of all directions that have the rung
    ("plain", "float32"): [
        *settings_of(3, 5), *rows((2, 8, 7, 9), (8, 1, 3, 3), groups=8, bias=True, relu=True, **SAME),
        *at("weight_grad", *rows((600, 1, 1, 1), (2, 1, 1, 1))),
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
    ("product", "float32"): POINTS,
    **{
        ("tensor", kind): [
            *settings_of(chunk, 3 * chunk if kind == "tf32" else 2 * chunk),
            *edges(64, chunk),
            rows((2, 16, 9, 8), (64 + chunk, 16, 3, 3), **SAME)[2],
            rows((600, 8, 1, 1), (8, 8, 1, 1))[2],
            *SLICED[:2],
        ]
        for kind, chunk in (("float16", 8), ("bfloat16", 8), ("tf32", 4))
    },
}  # fmt: skip
KEYS = {
    f"{rung}-{kind}-{direction}": (rung, kind, found)
    for (rung, kind), cases in ROWS.items()
    for direction in DIRECTIONS
    if (found := at(direction, *cases))
}
each_rung = pytest.mark.parametrize("rung, kind, cases", KEYS.values(), ids=KEYS)


def rung_of(case, name):
    return partial(getattr(cuda, case.function), rung=name)


def test_every_rung_is_here():
    assert {rung for rung, _ in ROWS} == set(cuda.RUNGS)
    assert len(KEYS) == 3 * len(ROWS) - 2, "all in each direction, but for tiled"


@each_rung
def test_rungs_are_exact_round_once_and_pass_nan(rung, kind, cases):
    """NaN from corners of the first operand, and of both in the weight gradient, where one of g also meets the zeros of
    the padding, and one of x that no tap reads goes nowhere. Sums of 16 bits may be asked for in float32."""
    case, function = cases[0], rung_of(cases[0], rung)
    exact(function, kind, case, residual=case.function == "forward")
    rounds(function, kind, case)
    corners = (0, 0, 0, 0), (-1, -1, -1, -1), (0, -1, -1, 0)
    for position in (0, 1) if case.function == "weight_grad" else (0,):
        spreads_nan(function, kind, case, [(position, corner) for corner in corners])
    if TYPES[kind].itemsize == 2:
        (output,) = case.outputs
        exact(function, kind, replace(case, outputs=(Output(output.shape, output.layout, "float32"),)))


@pytest.mark.deep
@each_rung
def test_rungs_are_exact_in_every_setting_and_at_every_edge(rung, kind, cases):
    for index, case in enumerate(cases[1:]):
        exact(rung_of(case, rung), kind, case, residual=index % 2 == 0 and case.function == "forward")


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


# ---- choice ----------------------------------------------------------------------------------------------------------


def started(direction, x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, rung=None, kind="float32"):
    """[(name of a kernel without that of the family, grid)] of what would run."""
    settings, dtype = (stride, padding, dilation, groups), TYPES[kind]
    out = conv2d.output_shape(x, w, None, *settings)
    images = {shape: unwritten(shape, CHANNELS_LAST, dtype) for shape in (x, out)}
    x_there, out_there, w_there = images[x], images[out], unwritten(w, FILTER, dtype)
    first, second, result = {
        "forward": (x_there, w_there, out_there),
        "input_grad": (out_there, w_there, x_there),
        "weight_grad": (out_there, x_there, w_there),
    }[direction]
    with tf32() if kind == "tf32" else contextlib.nullcontext():
        space = unwritten((conv2d.workspace(direction, x, w, *settings, dtype, first),), dtype=np.uint8)
        found = list(cuda.starts(direction, first, second, None, False, settings, result, space, rung))
    return [(kernel.name.removeprefix("conv2d_"), grid) for kernel, grid, *_ in found]


CHOICE = {  # what small CNNs have: (x, w, settings) -> rungs forward, of the input gradient, of the weight gradient
    "keras 1": ((64, 1, 28, 28), (32, 1, 3, 3), {}, "register plain register*"),
    "keras 2": ((64, 32, 26, 26), (64, 32, 3, 3), {}, "vector narrow vector*"),
    "lenet 2": ((64, 6, 14, 14), (16, 6, 5, 5), {}, "register narrow register*"),
    "resnet 1": ((128, 3, 32, 32), (16, 3, 3, 3), SAME, "register plain register*"),
    "resnet 3": ((128, 16, 32, 32), (32, 16, 3, 3), TWO, "narrow narrow narrow*"),
    "deep": ((1, 64, 8, 8), (64, 64, 3, 3), SAME, "vector* vector* vector"),
    "bottleneck": ((64, 64, 16, 16), (64, 64, 1, 1), {}, "product product product*"),
    "bottleneck to few": ((64, 64, 8, 8), (8, 64, 1, 1), {}, "product product narrow*"),
    "depthwise": ((64, 32, 16, 16), (32, 1, 3, 3), dict(groups=32, **SAME), "plain plain plain*"),
    "one image made": ((64, 16, 32, 32), (1, 16, 3, 3), SAME, "plain register register*"),
    "odd": ((64, 33, 8, 8), (65, 33, 3, 3), SAME, "register register* register*"),
}


def test_the_best_rung_is_chosen_by_shape():
    """*: the sums are cut into slices."""
    for what, (x, w, settings, rungs) in CHOICE.items():
        given = {**dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1), **settings}.values()
        out = conv2d.output_shape(x, w, None, *given)[2:]
        plans = [cuda_plan.plan_of(direction, x, w, out, tuple(given), "float32", True) for direction in DIRECTIONS]
        assert " ".join(plan.name + "*" * (plan.slices > 1) for plan in plans) == rungs, what


def test_types_and_places_choose():
    layer = (64, 32, 26, 26), (64, 32, 3, 3)
    for direction, name in zip(
        DIRECTIONS, ("tensor_{}_forward", "tensor_{}_input_grad", "weight_tensor_{}"), strict=True
    ):
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
    assert started("input_grad", *strides, (30, 30))[0][1] == (8, 1, 900)


def launched(case, kind):
    """Names of the kernels that the launcher starts; its results are checked."""
    with interpreter.recording() as launches:
        exact(getattr(conv2d, case.function), kind, case, device="interpreter")
    return [name for name, _ in launches]


def test_launchers_take_16_bits_and_widen_what_tensor_cores_do_not_suit():
    for case, name in zip(
        rows((1, 8, 5, 6), (8, 8, 3, 3)), ("tensor_{}_forward", "tensor_{}_input_grad", "weight_tensor_{}"), strict=True
    ):
        assert launched(case, "float16") == ["conv2d_" + name.format("float16")]
    for case in rows((1, 3, 5, 6), (7, 3, 3, 3)):
        assert not any("tensor" in name for name in launched(case, "float16"))


def test_pooling_follows_in_16_bits():
    for case in (
        pooled((1, 8, 9, 8), (8, 8, 3, 3), (2, 2), (2, 2)),
        pooled((1, 8, 17, 18), (8, 8, 1, 1), (17, 16), (1, 1)),  # more taps than a byte numbers
    ):
        inputs = make_inputs(case, np.float16, integers=True)
        want, places = wanted(case, inputs)
        out, positions = run(case, np.float16, inputs, DEVICE)
        same_bits((out, positions), (want.astype(np.float16), places.astype(positions.dtype)))


X, W = (1, 4, 8, 8), (8, 4, 3, 3)
REFUSED = [  # arguments of started -> the beginning of the message
    (("forward", X, W), dict(rung="fast"), "conv2d: rung is 'fast', wants one of plain"),
    (("forward", X, W), dict(rung="register", kind="float64"), "conv2d: the rung register wants float32"),
    (("forward", X, W), dict(rung="tensor"), "conv2d: the rung tensor wants float16, bfloat16, or float32 in the mode"),
    (("input_grad", X, (6, 4, 3, 3)), dict(rung="vector"), "conv2d input_grad: the rung vector wants addresses that"),
    (("weight_grad", X, (6, 4, 3, 3)), dict(rung="vector"), "conv2d weight_grad: the rung vector wants addresses that"),
    (("forward", (1, 4, 8, 20), (8, 4, 1, 17)), dict(rung="vector"), "conv2d: the rung vector wants at most 16 x 16"),
    (("forward", X, (8, 2, 3, 3)), dict(rung="tiled", groups=2), "conv2d: the rung tiled wants the forward direction"),
    (("forward", X, (8, 4, 1, 1)), dict(rung="product", stride=(1, 2)), "conv2d: the rung product wants filters of"),
]  # fmt: skip
FAR = [  # direction, x, stride -> message; w has one tap
    ("forward", (1 << 11, 1, 1 << 10, 1 << 10), (1, 1), ": the elements of x takes 2147483648, wants less than 21474"),
    ("weight_grad", (1, 1, 4, 4), (1 << 29, 1), " weight_grad: a walk over x takes 536870917, wants less than 268435"),
]


def test_a_rung_that_does_not_fit_and_sizes_beyond_32_bits_say_why():
    for arguments, others, message in REFUSED:
        with pytest.raises(ShapeError, match="^" + re.escape(message)):
            started(*arguments, **others)
    for direction, x, stride, message in FAR:
        settings = stride, (0, 0), (1, 1), 1
        with pytest.raises(ShapeError, match="^conv2d" + re.escape(message)):
            conv2d.workspace(direction, x, (1, 1, 1, 1), *settings, np.float32, interpreter.empty(1))
