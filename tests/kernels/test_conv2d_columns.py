"""Convolution on the CPU: what the columns of its products mean, products whose B is packed, pooling behind it."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from minigrad_kernels import conv2d, pool2d
from minigrad_kernels.conv2d import cpu, plan
from minigrad_kernels.conv2d.geometry import Geometry
from minigrad_kernels.conv2d.winograd_mode import winograd
from minigrad_kernels.toolchain import set_threads, threads
from minigrad_kernels.toolchain.product import VECTOR_BYTES

from .cases.conv2d import POOLED, pooled, rows
from .kernel_runs import make_inputs, run, same_bits, wanted
from .rungs import exact

GEOMETRIES = [  # x, w, stride, padding, dilation
    ((7, 1, 28, 28), (6, 1, 5, 5), (1, 1), (2, 2), (1, 1)),
    ((5, 3, 17, 16), (3, 3, 3, 7), (2, 1), (1, 3), (1, 1)),
    ((6, 2, 13, 18), (4, 2, 3, 4), (1, 2), (3, 2), (2, 1)),
    ((6, 3, 12, 14), (1, 3, 3, 3), (1, 1), (1, 2), (1, 2)),
    ((3, 5, 9, 8), (7, 5, 2, 3), (3, 4), (0, 1), (1, 1)),
    ((4, 40, 6, 7), (3, 40, 3, 2), (1, 1), (2, 1), (2, 1)),
    ((40, 2, 3, 4), (3, 2, 2, 2), (1, 1), (0, 1), (1, 1)),
    ((1, 1, 7, 40), (2, 1, 1, 9), (3, 1), (0, 4), (1, 1)),
    ((17, 4, 5, 1), (4, 4, 3, 1), (1, 1), (1, 0), (1, 1)),
    ((2, 35, 11, 9), (21, 35, 5, 4), (2, 1), (2, 2), (1, 1)),
    ((2, 130, 7, 7), (150, 130, 3, 3), (1, 1), (1, 1), (1, 1)),
]
PACKED = [  # rows of B lie far apart
    *rows((5, 260, 4, 4), (260, 260, 3, 3), padding=(1, 1), bias=True, relu=True),
    *rows((3, 130, 7, 6), (270, 130, 3, 3), stride=(2, 1), padding=(0, 1)),
    *rows((4, 520, 5, 5), (300, 260, 1, 1), groups=2),
]


def forget():
    """All plans."""
    cpu._ways.cache_clear()
    cpu._pooled.cache_clear()
    for launch in (conv2d.forward, conv2d.forward_pooled, conv2d.input_grad, conv2d.weight_grad):
        launch.contract.plans.clear()


@pytest.fixture(params=[None, 1, 2, 5])
def pixels(request, monkeypatch):
    """So many pixels in a group, or what shapes say (None); 1: columns are channels. Nothing by Winograd's way."""
    count, before = request.param, threads()
    if count:
        several = lambda geometry: min(count, geometry.out_size[1]) if count > 1 and plan._plain(geometry) else 0
        monkeypatch.setattr(plan, "_pixels", lambda geometry: max(1, several(geometry)))
        monkeypatch.setattr(plan, "_scatters", lambda geometry: several(geometry) > 0)
        monkeypatch.setattr(plan, "_windows", lambda geometry: several(geometry) * (geometry.dilation[0] == 1))
    forget()
    with winograd(False):
        yield count
    set_threads(before)
    forget()


@pytest.mark.parametrize("x, w, stride, padding, dilation", GEOMETRIES, ids=str)
def test_all_meanings_give_what_is_defined(x, w, stride, padding, dilation, pixels):
    """Exact sums in both types; NaN and infinity go no further; the same bits for any number of threads."""
    for case in rows(x, w, stride, padding, dilation, bias=True):
        function = getattr(conv2d, case.function)
        for kind in ("float32", "float64"):
            exact(function, kind, case, device="cpu")
        for value in (np.nan, np.inf):
            inputs = make_inputs(case, np.float32, integers=True)
            for array in inputs[: 1 + (case.function == "weight_grad")]:
                array[-1, 0, 0, -1] = array[0, 0, array.shape[2] // 2, array.shape[3] // 2] = value
            with np.errstate(invalid="ignore"):
                same_bits(run(case, np.float32, inputs), wanted(case, inputs))
    for case in rows((4 * x[0], *x[1:]), w, stride, padding, dilation):
        inputs = make_inputs(case, np.float32)
        same_bits(*(set_threads(count) or run(case, np.float32, inputs) for count in (1, 2)))


@pytest.mark.skipif(VECTOR_BYTES < 32, reason="vectors of four lanes idle less")
def test_few_channels_share_vectors():
    def chosen(images, depth, made, side, kernel, **changed):
        settings = dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1) | changed
        x, w = (images, depth, side, side), (made, depth // settings["groups"], kernel, kernel)
        out = conv2d.output_shape(x, w, None, *settings.values())[2:]
        geometry = Geometry(x, w, out, *settings.values(), 4, 1)
        return [plan.ways(direction, geometry)[0].columns for direction in ("forward", "input_grad", "weight_grad")]

    assert chosen(64, 1, 6, 28, 5, padding=(2, 2)) == ["pixels", "taps", "taps"]
    assert chosen(64, 6, 16, 14, 5)[1] == "taps"
    for plain in (chosen(8, 64, 64, 12, 3), chosen(8, 4, 4, 12, 3, groups=2), chosen(64, 1, 6, 28, 5, dilation=(2, 2))):
        assert plain == ["channels"] * 3


# ---- packed products -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", PACKED, ids=str)
def test_packed_products_are_exact(case):
    with winograd(False):
        for kind in ("float32", "float64"):
            exact(getattr(conv2d, case.function), kind, case, device="cpu")


# ---- with pooling ----------------------------------------------------------------------------------------------------


def one_by_one(case, dtype, inputs):
    """The results of the two ops, one after the other."""
    relu, *rest = case.params.values()
    settings, windows = rest[:4], rest[4:]
    n, o, i, j = conv2d.output_shape(inputs[0].shape, inputs[1].shape, None, *settings)
    convolved = np.empty((n, i, j, o), dtype).transpose(0, 3, 1, 2)
    space = np.empty(conv2d.workspace("forward", inputs[0].shape, inputs[1].shape, *settings, dtype), np.uint8)
    conv2d.forward(*inputs, relu, *settings, convolved, space)
    pool = replace(case, family="pool2d", function="max_forward", params={}, workspace=None)
    return run(pool, dtype, [convolved], function=lambda x, *made: pool2d.max_forward(x, *windows, *made))


@pytest.mark.parametrize("case", POOLED, ids=str)
def test_pooling_has_the_bits_of_the_two_ops(case):
    """Also where values are not finite."""
    for dtype in (np.float32, np.float64):
        inputs = make_inputs(case, dtype)
        same_bits(run(case, dtype, inputs), one_by_one(case, dtype, inputs))
    for value in (np.nan, np.inf, -np.inf):
        inputs[0][:, :, 3, 4] = inputs[0][:1, :1, 5, 5] = value
        same_bits(run(case, dtype, inputs), one_by_one(case, dtype, inputs))


def test_the_first_of_equal_maxima_of_16_bits_is_that_of_the_two_ops():
    """Sums that differ may be equal once rounded."""
    case = pooled((4, 8, 34, 34), (8, 8, 3, 3), (8, 8), (8, 8))
    for dtype in (np.float16, ml_dtypes.bfloat16):
        inputs = [array if array is None else array.astype(dtype) for array in make_inputs(case, np.float32)]
        same_bits(run(case, dtype, inputs), one_by_one(case, dtype, inputs))


def test_images_that_fit_the_cache_are_pooled_where_they_were_made():
    in_one_pass = lambda x, w: not cpu._pooled(x, w, (1, 1), (0, 0), (1, 1), 1, 4, threads(), 0)[1]
    assert in_one_pass((64, 1, 28, 28), (32, 1, 3, 3)) and in_one_pass((64, 6, 14, 14), (16, 6, 5, 5))
    assert not in_one_pass((4, 8, 300, 300), (64, 8, 3, 3))
