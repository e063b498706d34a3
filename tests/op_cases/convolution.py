"""Rows of convolutions."""

import numpy as np

from . import Op, classes, real, refusal, sample


def _input_grad(torch):
    return lambda grad, weight, shape, stride=1, padding=0, dilation=1, groups=1: torch.nn.grad.conv2d_input(
        shape, weight, grad, stride, padding, dilation, groups
    )


def _weight_grad(torch):
    return lambda grad, x, shape, stride=1, padding=0, dilation=1, groups=1: torch.nn.grad.conv2d_weight(
        x, shape, grad, stride, padding, dilation, groups
    )


def _wrong_shapes(op, name):
    images = real(2, 2, 4, 4), real(2, 2, 4, 4)
    return (
        refusal(ValueError, f"{op}: {name} is (2, 2, 4)", *images, (2, 2, 4)),
        refusal(ValueError, f"{op}: {name} is (2, 2, 4, -1)", *images, (2, 2, 4, -1)),
        refusal(TypeError, f"{op}: {name} is 4.0", *images, (2, 2, 4, 4.0)),
        refusal(ValueError, f"{op}: grad has shape (2, 4, 4)", real(2, 4, 4), images[1], (2, 2, 4, 4)),
    )


GEOMETRIES = (  # x, w, out, keywords
    ((2, 1, 7, 6), (3, 1, 3, 3), (2, 3, 5, 4), {}),
    ((2, 3, 7, 6), (4, 3, 3, 2), (2, 4, 4, 4), dict(stride=(2, 1), padding=(1, 0), dilation=(1, 2))),
    ((1, 4, 6, 6), (6, 2, 3, 3), (1, 6, 6, 6), dict(padding=1, groups=2)),
    ((2, 4, 5, 5), (4, 1, 3, 3), (2, 4, 3, 3), dict(groups=4, padding=1, stride=2)),
    ((3, 5, 4, 4), (2, 5, 1, 1), (3, 2, 4, 4), {}),
    ((2, 2, 4, 5), (3, 2, 4, 5), (2, 3, 1, 1), {}),
    ((2, 2, 9, 9), (3, 2, 3, 3), (2, 3, 3, 3), dict(stride=3, padding=1, dilation=2)),
    ((0, 2, 4, 4), (3, 2, 3, 3), (0, 3, 2, 2), {}),
)

OPS = [
    Op(
        "conv2d",
        (
            *(sample(real(*x), real(*w), **kw) for x, w, _, kw in GEOMETRIES),
            sample(real(2, 3, 5, 5), real(4, 3, 3, 3), real(4), padding=1),
            sample(real(2, 16, 5, 5), real(20, 16, 3, 3), real(20), 1, 2),
            sample(real(2, 2, 5, 5), real(4, 1, 3, 3), None, np.int64(2), (np.int32(1), 1), [1, 2], np.int64(2)),
        ),
        (
            refusal(ValueError, "conv2d: x has 3 channels", real(2, 3, 5, 5), real(4, 2, 3, 3)),
            refusal(ValueError, "conv2d:", real(3, 5, 5), real(4, 3, 3, 3)),
            refusal(ValueError, "conv2d:", real(2, 3, 5, 5), real(4, 3, 6, 3)),
            refusal(ValueError, "conv2d:", real(2, 3, 5, 5), real(4, 3, 3, 3), stride=0),
            refusal(ValueError, "conv2d:", real(2, 3, 5, 5), real(4, 3, 3, 3), padding=-1),
            refusal(ValueError, "conv2d:", real(2, 4, 5, 5), real(3, 2, 3, 3), groups=2),
            refusal(ValueError, "conv2d:", real(2, 3, 5, 5), real(4, 3, 3, 3), real(3)),
            refusal(TypeError, "conv2d: input has elements int64", classes(3, 2, 3, 5, 5), real(4, 3, 3, 3)),
            refusal(ValueError, "conv2d: bias has shape (4, 1)", real(2, 3, 5, 5), real(4, 3, 3, 3), real(4, 1)),
            *(
                refusal(TypeError, f"conv2d: {name} is", real(2, 3, 5, 5), real(4, 3, 3, 3), **{name: wrong})
                for name in ("stride", "padding", "dilation", "groups")
                for wrong in (1.0, True, "same", (1, 1, 1), None)
            ),
        ),
        linear=(0, 1),
    ),
    Op(
        "conv2d_input_grad",
        tuple(sample(real(*out), real(*w), x, **kw) for x, w, out, kw in GEOMETRIES if x[0]),
        (
            refusal(ValueError, "input_grad", real(2, 3, 4, 4), real(3, 2, 3, 3), (2, 2, 9, 9)),
            *_wrong_shapes("conv2d_input_grad", "input_shape"),
        ),
        torch=_input_grad,
        linear=(0, 1),
    ),
    Op(
        "conv2d_weight_grad",
        tuple(sample(real(*out), real(*x), w, **kw) for x, w, out, kw in GEOMETRIES if x[0]),
        (
            refusal(ValueError, "weight_grad", real(2, 3, 4, 4), real(2, 2, 9, 9), (3, 2, 3, 3)),
            *_wrong_shapes("conv2d_weight_grad", "weight_shape"),
        ),
        torch=_weight_grad,
        linear=(0, 1),
    ),
]
