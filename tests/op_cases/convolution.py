"""Rows of convolutions."""

import warnings

import numpy as np

from . import Draw, Op, classes, real, refusal, sample


def _input_grad(torch):
    return lambda grad, weight, shape, stride=1, padding=0, dilation=1, groups=1: torch.nn.grad.conv2d_input(
        shape, weight, grad, stride, padding, dilation, groups
    )


def _weight_grad(torch):
    return lambda grad, x, shape, stride=1, padding=0, dilation=1, groups=1: torch.nn.grad.conv2d_weight(
        x, shape, grad, stride, padding, dilation, groups
    )


def quietly(name):
    """PyTorch's function without its warnings."""

    def counterpart(torch):
        def function(*args, **kwargs):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return getattr(torch.nn.functional, name)(*args, **kwargs)

        return function

    return counterpart


def half(*shape):
    """A Tensor of float16."""
    return Draw(shape, "given", False, values=tuple(np.ones(shape, np.float16)))


def _wrong_shapes(op, name):
    images = real(2, 2, 4, 4), real(2, 2, 4, 4)
    return (
        refusal(ValueError, f"{op}: {name} is (2, 2, 4)", *images, (2, 2, 4)),
        refusal(ValueError, f"{op}: {name} is (2, 2, 4, -1)", *images, (2, 2, 4, -1)),
        refusal(TypeError, f"{op}: {name} is 4.0", *images, (2, 2, 4, 4.0)),
        refusal(TypeError, f"{op}: grad has elements int64", classes(3, 2, 2, 4, 4), images[1], (2, 2, 4, 4)),
        refusal(TypeError, f"{op}: stride is 1.0", *images, (2, 2, 4, 4), 1.0),
        refusal(TypeError, f"{op}: groups is None", *images, (2, 2, 4, 4), groups=None),
    )


GEOMETRIES = (  # x, w, out, keywords
    ((2, 1, 7, 6), (3, 1, 3, 3), (2, 3, 5, 4), {}),
    ((2, 3, 7, 6), (4, 3, 3, 2), (2, 4, 4, 4), dict(stride=(2, 1), padding=(1, 0), dilation=(1, 2))),
    ((1, 4, 6, 6), (6, 2, 3, 3), (1, 6, 6, 6), dict(padding=1, groups=2)),
    ((2, 4, 5, 5), (4, 1, 3, 3), (2, 4, 3, 3), dict(groups=4, padding=1, stride=2)),
    ((3, 5, 4, 4), (2, 5, 1, 1), (3, 2, 4, 4), {}),
    ((2, 2, 4, 5), (3, 2, 4, 5), (2, 3, 1, 1), {}),
    ((2, 2, 9, 9), (3, 2, 3, 3), (2, 3, 3, 3), dict(stride=3, padding=1, dilation=2)),
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 5, 5), dict(padding=2)),
    ((0, 2, 4, 4), (3, 2, 3, 3), (0, 3, 2, 2), {}),
)


def refused_by_all(op, x, w):
    """What every form refuses: x and w are the shapes of operands that fit, of one group."""
    images, filters = real(*x), real(*w)
    two = (2, 3), (2, 3, 4)
    return (
        refusal(ValueError, f"{op}: input has shape {x[2:]}", real(*x[2:]), filters),
        refusal(ValueError, f"{op}: input has shape {(1, *x)}", real(1, *x), filters),
        refusal(ValueError, f"{op}: input has 5 channels", real(x[0], 5, *x[2:]), filters),
        refusal(ValueError, f"{op}: input has 0 channels", real(x[0], 0, *x[2:]), filters),
        refusal(ValueError, "but x with its padding is only", real(*x[:-1], 0), filters),
        refusal(ValueError, f"{op}: weight has shape {w[1:]}", images, real(*w[1:])),
        refusal(ValueError, "wants no axis of size 0", images, real(*w[:-1], 0)),
        refusal(ValueError, "bias has shape (9,)", images, filters, real(9)),
        refusal(ValueError, "bias has shape (4, 1)", images, filters, real(4, 1)),
        refusal(ValueError, "bias has shape ()", images, filters, real()),
        refusal(ValueError, "groups=3", images, filters, groups=3),
        refusal(ValueError, "groups", images, filters, groups=0),
        refusal(ValueError, f"{op}: stride is 0", images, filters, stride=0),
        refusal(ValueError, f"{op}: dilation is 0", images, filters, dilation=0),
        refusal(ValueError, f"{op}: padding is -1", images, filters, padding=-1),
        refusal(TypeError, f"{op}: input has elements int64", classes(3, *x), filters),
        refusal(TypeError, f"{op}: weight has elements int64", images, classes(3, *w)),
        refusal(TypeError, f"{op}: weight has elements float16", images, half(*w)),
        refusal(TypeError, f"{op}: bias has elements float16", images, filters, half(4)),
        refusal(TypeError, f"{op}: bias is a list", images, filters, [0.0, 1.0, 2.0, 3.0]),
        *(
            refusal(TypeError, f"{op}: {name} is", images, filters, **{name: wrong})
            for name in ("stride", "padding", "dilation", "groups")
            for wrong in (1.0, True, None, two[len(x) - 3], (1.0,), b"same")
        ),
    )


def refused_padding(op, x, w):
    images, filters = real(*x), real(*w)
    return (
        refusal(ValueError, f"{op}: padding is 'Same'", images, filters, padding="Same"),
        refusal(ValueError, f"{op}: padding is ''", images, filters, padding=""),
        refusal(ValueError, f"{op}: padding is 'same' and stride", images, filters, None, 2, "same"),
        refusal(ValueError, "but x with its padding is only", images, filters, dilation=9),
        refusal(
            ValueError, "but x with its padding is only", images, real(*w[:2], *(n + 1 for n in x[2:])), padding="valid"
        ),
        refusal(TypeError, f"{op}: stride is '2'", images, filters, None, "2"),
    )


def refused_output_padding(op, x, w):
    images, filters = real(*x), real(*w)
    return (
        refusal(ValueError, f"{op}: output_padding is -1", images, filters, output_padding=-1),
        refusal(TypeError, f"{op}: output_padding is 0.0", images, filters, output_padding=0.0),
        refusal(TypeError, f"{op}: output_padding is 'same'", images, filters, output_padding="same"),
        refusal(TypeError, f"{op}: padding is 'same'", images, filters, padding="same"),
    )


OPS = [
    Op(
        "conv2d",
        (
            *(sample(real(*x), real(*w), **kw) for x, w, _, kw in GEOMETRIES),
            sample(real(2, 3, 5, 5), real(4, 3, 3, 3), real(4), padding=1),
            sample(real(2, 16, 5, 5), real(20, 16, 3, 3), real(20), 1, 2),
            sample(real(2, 2, 5, 5), real(4, 1, 3, 3), None, np.int64(2), (np.int32(1), 1), [1, 2], np.int64(2)),
            sample(real(2, 2, 6, 5), real(3, 2, 3, 2), real(3), (2,), [1], (2,)),
            sample(real(2, 2, 5, 6), real(3, 2, 3, 3), real(3), padding="same"),
            sample(real(2, 2, 5, 6), real(3, 2, 2, 4), real(3), 1, "same"),
            sample(real(2, 4, 4, 5), real(4, 2, 2, 3), None, (1, 1), "same", (3, 2), 2),
            sample(real(1, 1, 2, 2), real(1, 1, 5, 4), padding="same"),
            sample(real(2, 2, 5, 6), real(3, 2, 2, 3), real(3), 2, "valid"),
            sample(real(3, 5, 4), real(2, 3, 3, 3), real(2), 2, 1),
            sample(real(2, 5, 4), real(4, 1, 2, 2), real(4), padding="same", groups=2),
            sample(real(1, 1, 1), real(1, 1, 1, 1)),
            sample(real(0, 3, 4, 4), real(2, 3, 2, 2), real(2), padding="same"),
        ),
        (
            *refused_by_all("conv2d", (2, 3, 5, 5), (4, 3, 3, 3)),
            *refused_padding("conv2d", (2, 3, 5, 5), (4, 3, 3, 3)),
            refusal(ValueError, "conv2d: input has 3 channels", real(3, 5, 5), real(4, 2, 3, 3)),
            refusal(ValueError, "conv2d: input has 4 channels", real(2, 4, 5, 5), real(4, 3, 3, 3), groups=2),
        ),
        torch=quietly("conv2d"),
        linear=(0, 1),
    ),
    Op(
        "conv1d",
        (
            sample(real(2, 3, 7), real(4, 3, 3)),
            sample(real(2, 3, 7), real(4, 3, 2), real(4), 2, 1, 2),
            sample(real(2, 4, 9), real(6, 2, 3), real(6), (2,), [1], (2,), 2),
            sample(real(2, 4, 6), real(4, 1, 3), groups=4, padding=1),
            sample(real(2, 3, 6), real(4, 3, 4), real(4), padding="same"),
            sample(real(2, 3, 6), real(4, 3, 3), None, 1, "same", 2),
            sample(real(2, 3, 6), real(4, 3, 3), None, 2, "valid"),
            sample(real(3, 6), real(4, 3, 2), real(4)),
            sample(real(3, 6), real(4, 3, 2), real(4), padding="same"),
            sample(real(1, 1), real(1, 1, 1)),
            sample(real(0, 3, 6), real(4, 3, 2), real(4)),
        ),
        (
            *refused_by_all("conv1d", (2, 3, 7), (4, 3, 3)),
            *refused_padding("conv1d", (2, 3, 7), (4, 3, 3)),
            refusal(ValueError, "conv1d: weight has shape (4, 3, 3, 3)", real(2, 3, 7), real(4, 3, 3, 3)),
        ),
        torch=quietly("conv1d"),
        linear=(0, 1),
    ),
    Op(
        "conv_transpose2d",
        (
            *(sample(real(*out), real(*w), **kw) for _, w, out, kw in GEOMETRIES),
            sample(real(2, 3, 4, 3), real(3, 2, 3, 3), real(2), 2, 1, 1),
            sample(real(2, 4, 3, 3), real(4, 3, 2, 3), real(6), (2, 3), (0, 1), (1, 2), 2, (2, 1)),
            sample(real(1, 2, 3, 3), real(2, 2, 2, 2), real(2), 1, 1, 2, dilation=3),
            sample(real(2, 2, 3, 4), real(2, 3, 2, 2), real(3), (2, 3), 0, (2, 3), dilation=(3, 4)),
            sample(real(2, 2, 3, 4), real(2, 3, 2, 2), None, [2], (1,), [1], 1, (1,)),
            sample(real(3, 4, 3), real(3, 2, 3, 3), real(2), 2, 1, 1),
            sample(real(1, 1, 1), real(1, 1, 1, 1)),
            sample(real(2, 16, 3, 3), real(16, 20, 3, 3), real(20), padding=1),
            sample(real(0, 3, 4, 3), real(3, 2, 3, 3), real(2), 2),
        ),
        (
            *refused_by_all("conv_transpose2d", (2, 3, 5, 5), (3, 4, 3, 3))[:10],
            *refused_by_all("conv_transpose2d", (2, 4, 5, 5), (4, 4, 3, 3))[10:],
            *refused_output_padding("conv_transpose2d", (2, 3, 2, 2), (3, 4, 3, 3)),
        ),
        linear=(0, 1),
    ),
    Op(
        "conv_transpose1d",
        (
            sample(real(2, 3, 5), real(3, 4, 3)),
            sample(real(2, 3, 5), real(3, 4, 3), real(4), 2, 1, 1),
            sample(real(2, 4, 5), real(4, 2, 3), real(4), (2,), [1], (1,), 2, (3,)),
            sample(real(2, 4, 5), real(4, 1, 2), real(4), groups=4),
            sample(real(2, 3, 5), real(3, 4, 3), None, 2, 0, 3, dilation=4),
            sample(real(3, 5), real(3, 4, 2), real(4), 2),
            sample(real(1, 1), real(1, 1, 1)),
            sample(real(0, 3, 5), real(3, 4, 2), real(4)),
        ),
        (
            *refused_by_all("conv_transpose1d", (2, 3, 7), (3, 4, 3))[:10],
            *refused_by_all("conv_transpose1d", (2, 4, 7), (4, 4, 3))[10:],
            *refused_output_padding("conv_transpose1d", (2, 3, 2), (3, 4, 3)),
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
