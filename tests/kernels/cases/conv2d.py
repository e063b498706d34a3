"""Rows for conv2d: each geometry in all three directions."""

from minigrad_kernels import conv2d, pool2d
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from . import KernelCase, Output


def row(function, x, w, settings, shapes, layouts, output, relu=None, **other):
    """One direction of the convolution of an x with a w of these shapes."""
    return KernelCase(
        family="conv2d",
        function=function,
        shapes=shapes,
        params=settings if relu is None else {"relu": relu, **settings},
        outputs=(output,),
        layouts=layouts,
        workspace=True,
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
        workspace=True,
        terms=w[2] * w[3] * w[1] + 1,
        reference_params={"out_size": out[2:]},
        nan=(0,) * (min(x) > 0),
    )


GEOMETRIES = [
    *(
        rows((2, 3, 9, 10), (5, 3, 3, 3), *settings)
        for settings in (
            ((1, 1), (0, 0), (1, 1)), ((1, 1), (2, 3), (2, 2)), ((2, 2), (1, 1), (1, 1)), ((2, 2), (2, 3), (2, 1)),
            ((3, 1), (0, 0), (2, 1)), ((3, 1), (2, 3), (1, 1)),
        )
    ),
    rows((3, 6, 7, 8), (8, 3, 3, 2), (2, 1), (1, 1), (1, 2), 2, bias=True, relu=True),
    *(rows((2, c, 6, 7), (o, 1, 3, 3), (1, 1), (1, 1), groups=c) for c, o in ((3, 6), (20, 20), (67, 67))),
    rows((3, 19, 9, 8), (19, 1, 3, 3), (2, 1), (1, 2), (2, 1), groups=19, bias=True),
    rows((17, 40, 24, 24), (40, 1, 3, 3), padding=(1, 1), groups=40),  # depthwise for two threads
    *(
        rows((2, c, 7, 5), (o, c, 3, 3), bias=True)
        for c, o in ((1, 1), (1, 33), (3, 16), (6, 20), (16, 6), (16, 16), (20, 33), (20, 1))
    ),
    *(rows((3, 5, 6, 6), (4, 5, 1, 1), stride) for stride in ((1, 1), (3, 2))),
    rows((9, 3, 5, 4), (6, 3, 5, 4)),  # filter as large as the input
    rows((2, 3, 3, 4), (4, 3, 5, 5), padding=(3, 3), bias=True),  # filter larger than the input
    rows((2, 2, 5, 5), (3, 2, 2, 2), (3, 3)),  # inputs that nothing reads
    rows((2, 2, 6, 6), (3, 2, 1, 1), padding=(2, 1)),  # outputs that read padding alone
    rows((1, 1, 1, 1), (1, 1, 1, 1), bias=True, relu=True),
    rows((0, 3, 5, 5), (4, 3, 3, 3), bias=True),
    *(rows((n, 8, 4, 4), (8, 8, 3, 3), padding=(1, 1)) for n in (1, 7, 9, 65)),  # blocks of images
    rows((1, 32, 17, 19), (33, 32, 3, 3), padding=(1, 1)),  # one image for two threads
    rows((2, 90, 5, 5), (90, 90, 3, 3), padding=(1, 1)),  # dw too large for partial sums
    rows((1, 8, 160, 150), (8, 8, 3, 3), padding=(1, 1)),  # image too large for the cache
]  # fmt: skip

POOLED = [
    *(pooled((n, 1, 12, 12), (8, 1, 3, 3), (2, 2), (2, 2)) for n in (0, 1, 9)),
    *(pooled((3, 3, 9, 11), (c, 3, 3, 3), (2, 2), (2, 2), padding=(1, 1)) for c in (5, 17, 40)),
    pooled((4, 6, 14, 14), (16, 6, 5, 5), (2, 2), (2, 2), relu=False),
    pooled((5, 4, 9, 8), (6, 4, 3, 2), (3, 2), (2, 1), (1, 1), (1, 2), bias=False),
    pooled((3, 4, 10, 9), (6, 4, 3, 3), (2, 3), (3, 2), (1, 1), ceil_mode=True, stride=(2, 1), padding=(2, 0)),
    pooled((2, 8, 9, 9), (8, 2, 3, 3), (3, 3), (2, 2), stride=(1, 2), dilation=(2, 1), groups=4),
    pooled((2, 3, 24, 24), (4, 3, 3, 3), (17, 16), (3, 2)),  # more taps than a byte can number
    pooled((1, 4, 30, 30), (32, 4, 5, 5), (3, 3), (2, 2), (1, 1)),  # one image for two threads
    pooled((2, 1, 70, 70), (64, 1, 2, 2), (2, 2), (2, 2)),  # images too large for the cache
]

CASES = [case for geometry in GEOMETRIES for case in geometry] + POOLED
