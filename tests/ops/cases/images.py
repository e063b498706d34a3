"""Rows of convolutions, pools and resizing, all of which are defined as in PyTorch."""

from . import away, given, op, real, refusal, sample, ties

NAN, INF = float("nan"), float("inf")


# ---- convolutions ----------------------------------------------------------------------------------------------------


GEOMETRIES = (  # x, w, out, keywords
    ((2, 3, 7, 6), (4, 3, 3, 2), (2, 4, 4, 4), dict(stride=(2, 1), padding=(1, 0), dilation=(1, 2))),
    ((1, 4, 6, 6), (6, 2, 3, 3), (1, 6, 6, 6), dict(padding=1, groups=2)),
    ((3, 5, 4, 4), (2, 5, 1, 1), (3, 2, 4, 4), {}),
)


def _refused(x, w):
    """What every form refuses: x and w are the shapes of operands that fit, of one group."""
    yield refusal(ValueError, " has 5 channels", real(x[0], 5, *x[2:]), real(*w))
    yield refusal(ValueError, "groups=3", real(*x), real(*w), groups=3)


CONVOLUTIONS = [
    op(
        "conv2d",
        *(sample(real(*x), real(*w), **kw) for x, w, _, kw in GEOMETRIES),
        sample(real(2, 16, 5, 5), real(20, 16, 3, 3), real(20), 1, 2),
        sample(real(2, 2, 5, 6), real(3, 2, 2, 4), real(3), padding="same"),
        sample(real(2, 4, 4, 5), real(4, 2, 2, 3), None, (1, 1), "same", (3, 2), 2),
        sample(real(3, 5, 4), real(2, 3, 3, 3), real(2), 2, 1),
        sample(real(0, 3, 4, 4), real(2, 3, 2, 2), real(2)),
        *_refused((2, 3, 5, 5), (4, 3, 3, 3)),
        refusal(ValueError, "wanted (N, C, H, W) or (C, H, W)", real(5, 5), real(4, 3, 3, 3)),
        refusal(ValueError, "but x with its padding is only", real(2, 3, 5, 5), real(4, 3, 6, 6)),
        refusal(ValueError, "padding is 'same' and stride (2, 2)", real(1, 1, 5, 5), real(1, 1, 3, 3), None, 2, "same"),
    ),
    op(
        "conv1d",
        sample(real(2, 4, 9), real(6, 2, 3), real(6), (2,), [1], (2,), 2),
        sample(real(2, 3, 6), real(4, 3, 4), real(4), padding="same"),
        sample(real(3, 6), real(4, 3, 2)),
        *_refused((2, 3, 7), (4, 3, 3)),
    ),
    op(
        "conv_transpose2d",
        sample(real(2, 4, 3, 3), real(4, 3, 2, 3), real(6), (2, 3), (0, 1), (1, 2), 2, (2, 1)),
        *(sample(real(*out), real(*w), **kw) for _, w, out, kw in GEOMETRIES),
        sample(real(3, 4, 3), real(3, 2, 3, 3), real(2), 2, 1, 1),
        *_refused((2, 4, 5, 5), (4, 4, 3, 3)),
        refusal(TypeError, "padding is 'same'", real(2, 4, 5, 5), real(4, 4, 3, 3), padding="same"),
    ),
    op(
        "conv_transpose1d",
        sample(real(2, 4, 5), real(4, 2, 3), real(4), (2,), [1], (1,), 2, (3,)),
        sample(real(3, 5), real(3, 4, 2)),
        *_refused((2, 4, 7), (4, 4, 3)),
    ),
    op(
        "conv2d_input_grad",
        *(sample(real(*out), real(*w), x, **kw) for x, w, out, kw in GEOMETRIES),
        sample(real(2, 3, 2, 2), real(3, 2, 3, 3), (2, 2, 4, 4)),
        refusal(ValueError, "input_grad", real(2, 3, 4, 4), real(3, 2, 3, 3), (2, 2, 9, 9)),
    ),
    op(
        "conv2d_weight_grad",
        *(sample(real(*out), real(*x), w, **kw) for x, w, out, kw in GEOMETRIES),
        sample(real(2, 3, 2, 2), real(2, 2, 4, 4), (3, 2, 3, 3)),
        refusal(ValueError, "weight_grad", real(2, 3, 4, 4), real(2, 2, 9, 9), (3, 2, 3, 3)),
    ),
]

# ---- pools -----------------------------------------------------------------------------------------------------------


def _pool(name, shape, *samples):
    few, ceil = shape[2:], {"ceil_mode": True}
    return op(
        name,
        sample(away(*shape), 3, 2, 1, **ceil),
        sample(away(3, *few), 3, 1, 1),
        sample(away(0, 3, *few), 2),
        *samples,
        refusal(ValueError, f"{name}: input has shape {few}", away(*few), 2),
        refusal(ValueError, f"{name}:", away(*shape), 9),
        refusal(ValueError, f"{name}: padding is 2", away(*shape), 2, 2, 2),
    )


PLANE, LINE = (2, 3, 7, 6), (2, 3, 7)
HOLES = given([[[NAN, 1.0, 2.0, 0.0], [1.0, INF, -INF, -INF], [3.0, -INF, -INF, -INF], [0.0, 1.0, NAN, 2.0]]])
POOLS = [
    _pool(
        "max_pool2d",
        PLANE,
        sample(away(2, 3, 9, 9), (3, 2), (2, 1), (1, 0), (1, 2), True),
        sample(ties(2, 3, 6, 7), 3, 1, 1, 1, False, smooth=False),
        sample(HOLES, 2, smooth=False),
    ),
    _pool("max_pool1d", LINE, sample(away(2, 3, 9), 3, 2, 1, (2,), True)),
    _pool("avg_pool2d", PLANE, sample(real(2, 3, 7, 7), (3, 2), (2, 1), (1, 0), True, False)),
    _pool("avg_pool1d", LINE, sample(real(2, 3, 7), 3, 2, 1, True, False)),
    op(
        "adaptive_avg_pool2d",
        sample(real(2, 3, 7, 5), (3, 2)),
        sample(real(2, 3, 6, 6), 1),
        sample(real(3, 4, 5), [None, 2]),
        refusal(ValueError, "adaptive_avg_pool2d: input has shape (3, 3)", real(3, 3), 1),
        refusal(ValueError, "adaptive_avg_pool2d: output_size is -1", real(1, 1, 3, 3), -1),
    ),
]

# ---- resizing --------------------------------------------------------------------------------------------------------


IMAGES, SEQUENCES = (1, 2, 4, 5), (2, 3, 5)
RESIZE = op(
    "interpolate",
    sample(real(*IMAGES), (8, 3)),
    sample(real(*IMAGES), (8, 3), mode="bilinear", align_corners=True),
    sample(real(*IMAGES), None, (1.7, 0.6), "bilinear"),
    sample(real(*SEQUENCES), None, 1.7, "linear", True),
    sample(real(0, 3, 4, 5), 2),
    refusal(ValueError, "interpolate: size is None and scale_factor None, wanted one", real(*IMAGES)),
    refusal(ValueError, "wanted (N, C, L) for mode 'linear'", real(*IMAGES), 2, mode="linear"),
    refusal(TypeError, "interpolate: size is (2,), wanted an integer or 2", real(*IMAGES), (2,)),
    refusal(ValueError, "align_corners is True, wanted None", real(*IMAGES), 2, align_corners=True),
)

OPS = [*CONVOLUTIONS, *POOLS, RESIZE]
