"""The rungs of the convolution and of its input gradient, one by one: results, choice and refusals."""

import re
from functools import partial
from math import prod

import numpy as np
import pytest

from minigrad_kernels import conv2d, interpreter
from minigrad_kernels.conv2d import cuda
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER, strides_of

from .cases.conv2d import rows
from .kernel_runs import DEVICE, make_inputs, run, same_bits, wanted, within_rounding

pytestmark = pytest.mark.deep

SAME = dict(padding=(1, 1))  # with a filter of 3 x 3: as many pixels are made as are read
PIXELS = (1, 127), (8, 16), (3, 43)  # around a tile of 128 rows


def both(x, w, **settings):
    """Rows of forward and input gradient."""
    return rows(x, w, **settings)[:2]


def settings_of(c, o):
    """Strides, paddings, dilations and groups, each different along the two axes."""
    return [
        *both((2, c, 7, 9), (o, c, 3, 3), stride=(2, 1), padding=(1, 0), bias=True),
        *both((1, c, 8, 9), (o, c, 3, 2), stride=(3, 2), padding=(2, 3), dilation=(1, 2), relu=True),
        *both((2, c, 9, 6), (o, c, 2, 3), stride=(2, 3), padding=(0, 1), dilation=(2, 2)),
        *both((1, 2 * c, 5, 7), (2 * o, c, 4, 5), padding=(3, 3), groups=2, bias=True, relu=True),
        *both((1, c, 7, 7), (o, c, 2, 2), stride=(3, 3)),  # inputs that nothing reads
        *both((2, c, 3, 3), (o, c, 1, 1), stride=(2, 2), padding=(1, 0)),
    ]


def tile_rows(name):
    """Around the tile of a rung, in pixels and channels of both directions, and all settings."""
    _, (_, across) = (None, (128, 64)) if name == "register" else cuda.TILES[name]
    step = 4 if name.startswith("vector") else 1
    columns = (across - step, across, across + step)
    found = settings_of(*((8, 4) if step == 4 else (3, 5))) + both((0, 4, 5, 5), (4, 4, 3, 3))
    for (h, w), made in zip(PIXELS, columns, strict=True):
        forward, _ = both((1, 2 * step, h, w), (made, 2 * step, 3, 3), bias=True, **SAME)
        _, input_grad = both((1, made, h, w), (2 * step, made, 3, 3), **SAME)
        found += [forward, input_grad]
    for c, o in ((4, 4), (8, 12), (20, 16)) if step == 4 else ((1, 2), (2, 3), (3, 5), (5, 8), (33, 4)):
        found += both((1, c, 5, 6), (o, c, 3, 3), bias=True)
    return found


def with_rung(name, cases, function=None):
    return [(name, case) for case in cases if function in (None, case.function)]


ROWS = [
    *with_rung("plain", settings_of(3, 5)),
    *with_rung("tiled", [case for case in settings_of(3, 5) if case.params["groups"] == 1], "forward"),
    *with_rung("tiled", both((1, 5, 7, 7), (17, 5, 3, 3), bias=True, relu=True), "forward"),
    *(pair for name in cuda.TILES for pair in with_rung(name, tile_rows(name))),
    *with_rung("split", both((1, 40, 4, 5), (40, 40, 3, 3), bias=True, relu=True, **SAME)),
    *with_rung("split", both((2, 36, 3, 3), (64, 36, 5, 5), padding=(2, 2))),
    *with_rung("split", both((1, 23, 3, 3), (17, 23, 5, 5), padding=(2, 2), bias=True)),  # odd numbers of channels
    *with_rung("split", both((1, 160, 5, 5), (160, 160, 3, 3), stride=(2, 2), **SAME)),  # classes of unequal sums
    *with_rung("register", [case for case in settings_of(1, 5) if case.params["groups"] == 1], "forward"),
    *with_rung("register", both((3, 1, 7, 7), (72, 1, 3, 3), bias=True, **SAME), "forward"),
    *with_rung("register", both((1, 45, 4, 3), (69, 45, 3, 3), bias=True, **SAME)),  # filters in two parts
    *with_rung("plain", both((2, 8, 7, 9), (8, 1, 3, 3), groups=8, bias=True, relu=True, **SAME)),
    *with_rung("product", both((3, 5, 6, 7), (6, 5, 1, 1), bias=True, relu=True)),
    *with_rung("product", both((1, 400, 3, 3), (20, 400, 1, 1), bias=True)),  # in slices
    *with_rung("product", both((1, 20, 3, 3), (400, 20, 1, 1))),
]
FIRST = {(name, case.function): case for name, case in reversed(ROWS) if min(case.shapes[0])}  # of each rung
NAMED = {"ids": lambda value: str(value).removeprefix("conv2d.")}
each_row = pytest.mark.parametrize("name, case", ROWS, **NAMED)
each_first = pytest.mark.parametrize("name, case", [(key[0], case) for key, case in FIRST.items()], **NAMED)


def forced(name, case, dtype, inputs):
    """Outputs of one rung, which must be the one that runs."""
    return run(case, dtype, inputs, DEVICE, partial(getattr(cuda, case.function), rung=name))


def test_every_rung_is_here():
    """But for those on tensor cores, which have a file of their own."""
    assert {name for name, _ in ROWS} == set(cuda.RUNGS) - {"tensor"}


@each_row
def test_rungs_are_exact_on_small_integers(name, case):
    inputs = make_inputs(case, np.float32, integers=True)
    same_bits(forced(name, case, np.float32, inputs), wanted(case, inputs))


@each_first
def test_rungs_round_as_they_should_and_the_same_twice(name, case):
    inputs = make_inputs(case, np.float32)
    results = forced(name, case, np.float32, inputs)
    within_rounding(case, np.float32, inputs, results)
    same_bits(results, forced(name, case, np.float32, inputs))


@each_first
def test_nan_reaches_the_pixels_that_read_it(name, case):
    """From every corner of the source, and from its middle; ReLU lets it pass."""
    _, channels, height, width = case.shapes[0]
    for place in ((0, 0, 0, 0), (-1, channels - 1, height - 1, width - 1), (0, channels // 2, height // 2, width // 2)):
        inputs = make_inputs(case, np.float32, integers=True)
        inputs[0][place] = np.nan
        (got,), (want,) = forced(name, case, np.float32, inputs), wanted(case, inputs)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("function", ["forward", "input_grad"])
def test_float64_runs_plain(function):
    for case in [case for name, case in ROWS if name == "split" and case.function == function]:
        inputs = make_inputs(case, np.float64)
        with interpreter.recording() as launches:
            within_rounding(case, np.float64, inputs, run(case, np.float64, inputs, "interpreter"))
        assert [name for name, _ in launches] == [f"conv2d_plain_{function}_f64"]


# ---- choice ----------------------------------------------------------------------------------------------------------


def unwritten(shape, layout, dtype=np.float32):
    """Memory of which only shape, layout and place are asked."""
    strides = strides_of(shape, layout, np.dtype(dtype).itemsize)
    return np.ndarray.__new__(interpreter.Array, shape, dtype, np.empty(prod(shape) + 16, dtype), 0, strides)


def started(function, x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, rung=None, dtype=np.float32):
    """[(name of a kernel without that of the family, grid)] of what would run."""
    settings = stride, padding, dilation, groups
    out = conv2d.output_shape(x, w, None, *settings)
    images = [unwritten(shape, CHANNELS_LAST, dtype) for shape in (x, out)]
    source, result = images if function == "forward" else reversed(images)
    nbytes = conv2d.workspace(function, x, w, *settings, dtype, source)
    space = np.ndarray.__new__(interpreter.Array, (nbytes,), np.uint8)
    found = cuda.starts(function, source, unwritten(w, FILTER, dtype), None, False, settings, result, space, rung)
    return [(kernel.name.removeprefix("conv2d_"), grid) for kernel, grid, *_ in found]


TWO = dict(stride=(2, 2), padding=(1, 1))
CHOICE = {  # what small CNNs have: (x, w, settings) -> kernels forward, kernels of the input gradient
    "keras 1": ((64, 1, 28, 28), (32, 1, 3, 3), {}, ["register_forward"], ["plain_input_grad_f32"]),
    "keras 2": (
        (64, 32, 26, 26), (64, 32, 3, 3), {}, ["vector_128x64_forward"], ["vector_128x16_input_grad"],
    ),
    "lenet 1": ((64, 1, 28, 28), (6, 1, 5, 5), dict(padding=(2, 2)), ["register_forward"], ["plain_input_grad_f32"]),
    "lenet 2": ((64, 6, 14, 14), (16, 6, 5, 5), {}, ["register_forward"], ["vector_128x16_input_grad"]),
    "resnet 1": ((128, 3, 32, 32), (16, 3, 3, 3), SAME, ["register_forward"], ["plain_input_grad_f32"]),
    "resnet 2": ((128, 16, 32, 32), (16, 16, 3, 3), SAME, ["vector_128x16_forward"], ["vector_128x16_input_grad"]),
    "resnet 3": ((128, 16, 32, 32), (32, 16, 3, 3), TWO, ["vector_128x16_forward"], ["vector_128x16_input_grad"]),
    "resnet 4": (
        (128, 64, 8, 8), (64, 64, 3, 3), SAME, ["vector_128x64_forward", "matmul_add"],
        ["vector_128x64_input_grad", "matmul_add"],
    ),
    "deep, batch 1": (
        (1, 64, 8, 8), (64, 64, 3, 3), SAME, ["vector_128x64_forward", "matmul_add"],
        ["vector_128x64_input_grad", "matmul_add"],
    ),
    "shortcut": (
        (128, 16, 32, 32), (32, 16, 1, 1), dict(stride=(2, 2)), ["vector_128x16_forward"], ["vector_128x16_input_grad"],
    ),
    "bottleneck": ((64, 64, 16, 16), (64, 64, 1, 1), {}, ["matmul_register_64x64"], ["matmul_register_64x64"]),
    "depthwise": (
        (64, 32, 16, 16), (32, 1, 3, 3), dict(groups=32, **SAME), ["plain_forward_f32"], ["plain_input_grad_f32"],
    ),
    "one image made": ((64, 16, 32, 32), (1, 16, 3, 3), SAME, ["plain_forward_f32"], ["register_input_grad"]),
    "odd": ((64, 33, 8, 8), (65, 33, 3, 3), SAME, ["register_forward"], ["register_input_grad", "matmul_add"]),
}  # fmt: skip


def test_the_best_rung_is_chosen_by_shape():
    for what, (x, w, settings, forward, input_grad) in CHOICE.items():
        assert [name for name, _ in started("forward", x, w, **settings)] == forward, what
        assert [name for name, _ in started("input_grad", x, w, **settings)] == input_grad, what


def test_where_128_bit_loads_cannot_go_single_ones_do():
    """An image that begins 4 bytes after a multiple of 16."""
    x, w = (2, 8, 6, 6), (16, 8, 3, 3)
    settings, out = ((1, 1), (0, 0), (1, 1), 1), (2, 16, 4, 4)
    memory, strides = np.empty(prod(x) + 16, np.float32), strides_of(x, CHANNELS_LAST, 4)
    late = np.ndarray.__new__(interpreter.Array, x, np.float32, memory, 4, strides)
    arguments = unwritten(w, FILTER), None, False, settings, unwritten(out, CHANNELS_LAST), None
    for image, kernel in ((unwritten(x, CHANNELS_LAST), "vector_128x16"), (late, "register")):
        ((found, *_),) = cuda.starts("forward", image, *arguments)
        assert found.name == f"conv2d_{kernel}_forward"


def test_strides_that_make_more_classes_than_a_grid_has_run_plain():
    x, w = (1, 4, 900, 900), (8, 4, 3, 3)
    assert [name for name, _ in started("forward", x, w, (300, 300))] == ["vector_128x16_forward"]
    assert [name for name, _ in started("input_grad", x, w, (300, 300))] == ["plain_input_grad_f32"]
    assert [grid for _, grid in started("input_grad", x, w, (30, 30))] == [(8, 1, 900)]


REFUSED = {  # arguments of started -> the message's beginning
    "name": (("forward", (1, 4, 8, 8), (8, 4, 3, 3)), dict(rung="fast"), "conv2d: rung is 'fast', wants one of plain"),
    "type": (
        ("forward", (1, 4, 8, 8), (8, 4, 3, 3)),
        dict(rung="register", dtype=np.float64),
        "conv2d: the rung register wants float32",
    ),
    "channels read": (
        ("input_grad", (1, 4, 8, 8), (6, 4, 3, 3)),
        dict(rung="vector"),
        "conv2d input_grad: the rung vector wants addresses that are multiples of 16, and multiples of 4 channels that",
    ),
    "channels": (
        ("forward", (1, 4, 8, 8), (6, 4, 3, 3)),
        dict(rung="vector_128x16"),
        "conv2d: the rung vector_128x16 wants addresses that are multiples of 16, and multiples of 4 channels in",
    ),
    "taps": (
        ("forward", (1, 4, 8, 20), (8, 4, 1, 17)), dict(rung="vector"), "conv2d: the rung vector wants at most 16 x 16",
    ),
    "far": (
        ("forward", (1, 64, 8, 8), (1, 64, 1, 1)),
        dict(rung="register", padding=(4500, 4500)),
        "conv2d: the rung register wants at most 16 x 16 taps, 65535 groups, and padding and strides that are not huge",
    ),
    "short": (
        ("forward", (1, 4, 8, 8), (8, 4, 3, 3)), dict(rung="split"), "conv2d: the rung split wants long sums for few",
    ),
    "groups": (
        ("forward", (1, 4, 8, 8), (8, 2, 3, 3)), dict(rung="tiled", groups=2), "conv2d: the rung tiled wants the forw",
    ),
    "product": (
        ("forward", (1, 4, 8, 8), (8, 4, 1, 1)),
        dict(rung="product", stride=(1, 2)),
        "conv2d: the rung product wants filters of one pixel,",
    ),
}  # fmt: skip


def test_a_rung_that_does_not_fit_says_why():
    for arguments, others, message in REFUSED.values():
        with pytest.raises(ShapeError, match="^" + re.escape(message)):
            started(*arguments, **others)


@pytest.mark.parametrize(
    "x, settings, what",
    [
        ((1 << 11, 1, 1 << 10, 1 << 10), ((1, 1), (0, 0), (1, 1), 1), "the elements of an array takes 2147483648"),
        ((1, 1, 2, 2), ((1, 1), (1 << 30, 0), (1, 1), 1), "an image with its padding takes 2147483650"),
        ((1, 1, 2, 2), ((1 << 31, 1), (0, 0), (1, 1), 1), "a setting takes 2147483648"),
    ],
)
def test_sizes_beyond_32_bits_are_refused(x, settings, what):
    with pytest.raises(ShapeError, match=f"^conv2d: {what}, wants less than 2147482624"):
        conv2d.workspace("forward", x, (1, 1, 1, 1), *settings, np.float32, interpreter.empty(1))
