"""Rows for conv2d: each geometry in all three directions."""

from itertools import product

import numpy as np

from minigrad_kernels import conv2d, pool2d
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from . import KernelCase, Output, Refusal


def row(function, x, w, settings, shapes, layouts, output, relu=None, **other):
    """One direction of the convolution of an x with a w of these shapes."""
    return KernelCase(
        family="conv2d",
        function=function,
        shapes=shapes,
        params=settings if relu is None else {"relu": relu, **settings},
        outputs=(output,),
        layouts=layouts,
        workspace=lambda inputs, _, dtype: conv2d.workspace(function, x, w, *settings.values(), dtype, inputs[0]),
        **other,
    )


def rows(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, bias=False, relu=False):
    """Forward, input gradient and weight gradient of one geometry."""
    settings = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    out = conv2d.output_shape(x, w, None, *settings.values())
    taps, images, filters = w[2] * w[3], CHANNELS_LAST, FILTER
    nan = min(x) > 0  # there is an element to spoil
    forward = dict(terms=taps * w[1] + 1, nan=(0,) * nan, relu=relu)
    input_grad = dict(terms=taps * w[0] // groups, reference_params={"size": x[2:]}, nan=(0,) * nan)
    weight_grad = dict(terms=max(1, out[0] * out[2] * out[3]), reference_params={"kernel": w[2:]}, nan=(0, 1) * nan)
    absent = (w[0],) if bias else None
    return [
        row("forward", x, w, settings, (x, w, absent), (images, filters), Output(out, images), **forward),
        row("input_grad", x, w, settings, (out, w), (images, filters), Output(x, images), **input_grad),
        row("weight_grad", x, w, settings, (out, x), (images, images), Output(w, filters), **weight_grad),
    ]


def pooled(x, w, kernel_size, step, border=(0, 0), apart=(1, 1), ceil_mode=False, relu=True, bias=True, **conv):
    """Convolution with max pooling behind it, whose stride, padding and dilation are step, border and apart."""
    settings = dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1) | conv
    windows = dict(kernel_size=kernel_size, pool_stride=step, pool_padding=border, pool_dilation=apart)
    convolved = conv2d.output_shape(x, w, None, *settings.values())
    out = pool2d.output_shape("max_pool2d", convolved, *windows.values(), ceil_mode)
    return KernelCase(
        family="conv2d",
        function="forward_pooled",
        shapes=(x, w, (w[0],) if bias else None),
        params={"relu": relu, **settings, **windows},
        outputs=(Output(out, CHANNELS_LAST), Output(out, CHANNELS_LAST, str(pool2d.position_type(kernel_size)))),
        layouts=(CHANNELS_LAST, FILTER),
        workspace=lambda inputs, _, dtype: conv2d.workspace(
            "forward_pooled", x, w, *settings.values(), dtype, inputs[0]
        ),
        terms=w[2] * w[3] * w[1] + 1,
        reference_params={"out_size": out[2:]},
        nan=(0,) * (min(x) > 0),
    )


GEOMETRIES = [
    *(
        rows((2, 3, 9, 10), (5, 3, 3, 3), stride, padding, dilation)
        for stride, padding, dilation in product(
            [(1, 1), (2, 2), (3, 1)], [(0, 0), (1, 1), (2, 3)], [(1, 1), (2, 1), (2, 2)]
        )
    ),
    *(
        rows((3, 6, 7, 8), (8, 6 // groups, 3, 2), stride, (1, 1), (1, 2), groups, bias=True)
        for groups, stride in product((1, 2), ((1, 1), (2, 2)))
    ),
    *(rows((2, c, 6, 7), (o, 1, 3, 3), (1, 1), (1, 1), groups=c) for c, o in ((6, 6), (3, 6), (20, 20), (67, 67))),
    rows((3, 19, 9, 8), (19, 1, 3, 3), (2, 1), (1, 2), (2, 1), groups=19, bias=True),
    rows((17, 40, 24, 24), (40, 1, 3, 3), padding=(1, 1), groups=40),  # depthwise for two threads
    *(rows((2, c, 7, 5), (o, c, 3, 3), bias=True) for c, o in product((1, 3, 6, 16, 20), (1, 6, 16, 20, 33))),
    *(rows((3, 5, 6, 6), (4, 5, 1, 1), stride) for stride in ((1, 1), (2, 2), (3, 2))),
    *(rows((2, 4, 9, 9), (7, 4, 5, 5), padding=padding, bias=True) for padding in ((0, 0), (2, 2), (3, 0))),
    *(rows((n, 3, 5, 4), (6, 3, 5, 4)) for n in (1, 2, 9)),  # filter as large as the input
    rows((2, 3, 3, 4), (4, 3, 5, 5), padding=(3, 3), bias=True),  # filter larger than the input
    rows((2, 2, 5, 5), (3, 2, 2, 2), (3, 3)),  # inputs that nothing reads
    rows((2, 2, 6, 6), (3, 2, 1, 1), padding=(2, 1)),  # outputs that read padding alone
    rows((1, 1, 1, 1), (1, 1, 1, 1), bias=True, relu=True),
    rows((0, 3, 5, 5), (4, 3, 3, 3), bias=True),
    *(rows((n, 8, 4, 4), (8, 8, 3, 3), padding=(1, 1)) for n in (1, 7, 8, 9, 17, 65)),  # blocks of images
    rows((1, 32, 17, 19), (33, 32, 3, 3), padding=(1, 1)),  # one image for two threads
    rows((5, 16, 13, 13), (32, 16, 3, 3), bias=True, relu=True),
    rows((2, 3, 8, 7), (5, 3, 3, 3), padding=(1, 1), relu=True),
    rows((2, 90, 5, 5), (90, 90, 3, 3), padding=(1, 1)),  # dw too large for partial sums
    rows((1, 8, 160, 150), (8, 8, 3, 3), padding=(1, 1)),  # image too large for the cache
    rows((2, 64, 40, 40), (8, 64, 1, 1)),
]

POOLED = [
    *(pooled((n, 1, 12, 12), (8, 1, 3, 3), (2, 2), (2, 2)) for n in (0, 1, 2, 9, 33)),
    *(pooled((3, 3, 9, 11), (c, 3, 3, 3), (2, 2), (2, 2), padding=(1, 1)) for c in (1, 5, 16, 17, 40)),
    pooled((4, 6, 14, 14), (16, 6, 5, 5), (2, 2), (2, 2), relu=False),
    pooled((5, 4, 9, 8), (6, 4, 3, 2), (3, 2), (2, 1), (1, 1), (1, 2), bias=False),
    pooled((3, 4, 10, 9), (6, 4, 3, 3), (2, 3), (3, 2), (1, 1), ceil_mode=True, stride=(2, 1), padding=(2, 0)),
    pooled((2, 8, 9, 9), (8, 2, 3, 3), (3, 3), (2, 2), stride=(1, 2), dilation=(2, 1), groups=4),
    pooled((2, 20, 8, 8), (20, 1, 3, 3), (2, 2), (2, 2), groups=20),
    pooled((2, 3, 24, 24), (4, 3, 3, 3), (17, 16), (3, 2)),  # more taps than a byte can number
    pooled((2, 16, 24, 24), (32, 16, 3, 3), (2, 2), (2, 2)),  # for two threads
    pooled((1, 4, 30, 30), (32, 4, 5, 5), (3, 3), (2, 2), (1, 1)),  # one image for two threads
    pooled((2, 1, 70, 70), (64, 1, 2, 2), (2, 2), (2, 2)),  # images too large for the cache
]

CASES = [case for geometry in GEOMETRIES for case in geometry] + POOLED


def geometry_refusal(
    name, error, message,
    x=(2, 3, 8, 8), w=(4, 3, 3, 3), bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1,
):  # fmt: skip
    call = lambda: conv2d.output_shape(x, w, bias, stride, padding, dilation, groups)
    return Refusal(f"conv2d {name}", call, error, "conv2d: " + message)


def array_refusal(
    name, error, message, kind="f", layout=CHANNELS_LAST, out=(1, 2, 2, 2), relu=False, workspace=None, writeable=True,
    stride=(1, 1), padding=(0, 0), groups=1,
):  # fmt: skip
    """A call of forward with arrays of these types, layouts and shapes, and these settings."""

    def laid_out(shape, kind, order):
        return np.ones([shape[axis] for axis in order], kind).transpose(np.argsort(order))

    def call():
        x, w = laid_out((1, 3, 4, 4), kind, layout), laid_out((2, 3, 3, 3), "f", FILTER)
        result = laid_out(out, "f", CHANNELS_LAST)
        result.flags.writeable = writeable
        space = np.empty(0, np.uint8) if workspace is None else workspace
        conv2d.forward(x, w, None, relu, stride, padding, (1, 1), groups, result, space)

    return Refusal(f"conv2d {name}", call, error, "conv2d: " + message)


REFUSALS = [
    geometry_refusal(
        "channels",
        ShapeError,
        "x has 3 channels (shape (32, 3, 28, 28)), w takes 1 and makes 8",
        x=(32, 3, 28, 28),
        w=(8, 1, 3, 3),
    ),
    geometry_refusal(
        "empty filter", ShapeError, "x has 3 channels (shape (2, 3, 8, 8)), w takes 3 and makes 4", w=(4, 3, 0, 3)
    ),
    geometry_refusal(
        "groups of w",
        ShapeError,
        "x has 3 channels (shape (2, 3, 8, 8)), w takes 3 and makes 4 (shape (4, 1, 3, 3)) with groups=3; wants",
        w=(4, 1, 3, 3),
        groups=3,
    ),
    geometry_refusal("bias", ShapeError, "bias has shape (3,), w makes 4 channels; wants (4,)", bias=(3,)),
    geometry_refusal(
        "reach", ShapeError, "w reaches over (3, 9) (shape (4, 3, 3, 3), dilation (1, 4))", dilation=(1, 4)
    ),
    array_refusal("stride", ShapeError, "stride is (1, 0), wants at least 1", stride=(1, 0)),
    array_refusal("padding", ShapeError, "padding is (-1, 0), wants at least 0", padding=(-1, 0)),
    array_refusal("no integers", KindError, "padding is (0.5, 1), wants an integer or a pair", padding=(0.5, 1)),
    array_refusal("no groups", ShapeError, "groups is 0, wants 1 to", groups=0),
    array_refusal("half a group", KindError, "groups is 1.5, wants an integer", groups=1.5),
    array_refusal("type", KindError, "w has type float32, wants float64", kind="d"),
    array_refusal("integers", KindError, "x has type int32, wants float32 or float64", kind="i"),
    array_refusal(
        "layout",
        ShapeError,
        "x has strides (192, 64, 16, 4) (shape (1, 3, 4, 4)), wants channels last",
        layout=(0, 1, 2, 3),
    ),
    array_refusal("output", ShapeError, "out has shape (1, 2, 3, 2), wants (1, 2, 2, 2)", out=(1, 2, 3, 2)),
    array_refusal("read-only", ShapeError, "out is read-only, wants an array to write to", writeable=False),
    array_refusal("relu", KindError, "relu is 1, wants True or False", relu=1),
    array_refusal("workspace type", KindError, "workspace has type float32, wants uint8", workspace=np.ones(99, "f")),
    array_refusal(
        "workspace with gaps",
        ShapeError,
        "workspace has shape (9999,), wants ",
        workspace=np.empty(19998, np.uint8)[::2],
    ),
    Refusal(
        "conv2d workspace",
        lambda: conv2d.input_grad(
            np.ones((1, 2, 1, 1), "f"),
            np.ones((2, 1, 1, 1), "f"),
            (1, 1),
            (0, 0),
            (1, 1),
            1,
            np.ones((1, 1, 1, 1), "f"),
            np.empty(3, np.uint8),
        ),
        ShapeError,
        "conv2d input_grad: workspace has shape (3,), wants ",
    ),
]
