"""Rows of pooling."""

from dataclasses import dataclass

import numpy as np

from . import Draw, Op, away, classes, real, refusal, sample, ties

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Holding(Draw):
    """A Tensor in which the given values, NaN and infinities, stand among small integers."""

    def make(self, rng, dtype):
        array = np.arange(np.prod(self.shape)).reshape(self.shape).astype(dtype) % 5 - 2
        array.flat[1 : 3 * len(self.values) : 3] = self.values
        return array


def holding(values, *shape):
    return Holding(shape, values=tuple(values))


def _adaptive(torch):
    """PyTorch's, which refuses the gradient of an empty result."""

    def function(x, output_size):
        out = torch.nn.functional.adaptive_avg_pool2d(x, output_size)
        return out if out.numel() else (x.sum() * 0).expand(out.shape)

    return function


POOLS = (
    sample(away(2, 3, 6, 6), 2),
    sample(away(2, 3, 7, 5), 3, 2, 1),
    sample(away(1, 2, 7, 7), (3, 2), (2, 1), (1, 0)),
    sample(away(2, 3, 7, 7), 3, 2, 1, ceil_mode=True),
    sample(away(2, 20, 5, 5), 3, 1),
    sample(away(2, 3, 5, 6), (2,), [3], (1,)),
    sample(away(2, 3, 5, 6), np.int64(2), None, np.int32(1)),
    sample(away(3, 5, 6), 2),
    sample(away(3, 5, 6), (2, 3), 1, 1, ceil_mode=True),
    sample(away(1, 2, 1, 7), (3, 2), ceil_mode=True),
    sample(away(1, 1, 1), 1),
    sample(away(0, 3, 4, 4), 2),
)
POOLS_1D = (
    sample(away(2, 3, 6), 2),
    sample(away(2, 3, 7), 3, 2, 1),
    sample(away(2, 3, 7), (3,), [2], (1,), ceil_mode=True),
    sample(away(2, 20, 5), 3, 1),
    sample(away(2, 3, 2), 3, ceil_mode=True),
    sample(away(3, 6), 2),
    sample(away(3, 7), 3, 2, 1, ceil_mode=True),
    sample(away(1, 1), 1),
    sample(away(0, 3, 6), 2),
)


def refused_by_all(op, shape):
    """What every pool refuses: shape is that of an input of 6 pixels along each dimension."""
    few, many = shape[2:], (1, *shape)
    return (
        refusal(ValueError, f"{op}: input has shape {few}", away(*few), 2),
        refusal(ValueError, f"{op}: input has shape {many}", away(*many), 2),
        refusal(ValueError, f"{op}:", away(*shape), 7),
        refusal(ValueError, f"{op}:", away(*shape), 2, 2, 2),
        refusal(ValueError, f"{op}: kernel_size is 0", away(*shape), 0),
        refusal(ValueError, f"{op}: kernel_size is -1", away(*shape), -1),
        refusal(ValueError, f"{op}: stride is 0", away(*shape), 2, 0),
        refusal(ValueError, f"{op}: padding is -1", away(*shape), 2, 2, -1),
        refusal(ValueError, f"{op}: x has shape (2, 0, ", away(2, 0, *few), 2),
        refusal(ValueError, f"{op}: x has", away(*shape[:-1], 0), 2),
        refusal(TypeError, f"{op}: input has elements int64", classes(9, *shape), 2),
        refusal(TypeError, f"{op}: input is a ndarray", np.ones(shape), 2),
        *(
            refusal(TypeError, f"{op}: {name} is", away(*shape), **{"kernel_size": 2, name: wrong})
            for name in ("kernel_size", "stride", "padding")
            for wrong in (2.5, True, "a", (1, 1, 1), (1.0,), ((1, 1),), ())
        ),
    )


OPS = [
    Op(
        "max_pool2d",
        (
            *POOLS,
            sample(away(2, 3, 9, 9), 3, 2, 1, 2),
            sample(away(2, 3, 9, 9), 3, 2, 1, (1, 2), True),
            sample(away(2, 3, 7, 6), (3, 2), (2, 1), (1, 0)),
            sample(away(3, 7, 6), (3, 2), (2, 1), (1, 0)),
            sample(away(0, 3, 4, 4), 2),
            sample(ties(2, 3, 6, 6), 2, smooth=False),
            sample(ties(2, 3, 6, 7), 3, 1, 1, 1, False, smooth=False),
            sample(holding([NAN, INF, NAN, -INF, -INF], 1, 2, 4, 4), 3, 1, 1, smooth=False),
            sample(holding([-INF] * 5, 1, 1, 2, 8), 2, smooth=False),
        ),
        (
            *refused_by_all("max_pool2d", (2, 3, 6, 6)),
            refusal(ValueError, "max_pool2d: a window covers no element", away(1, 1, 2, 9), 2, 2, 1, 3, True),
            refusal(ValueError, "max_pool2d: padding is 2", away(1, 1, 9, 9), 3, 1, 2, 2),
            refusal(ValueError, "max_pool2d: dilation is 0", away(1, 1, 9, 9), 3, 1, 1, 0),
            refusal(TypeError, "max_pool2d: dilation is None", away(1, 1, 9, 9), 3, 1, 1, None),
        ),
    ),
    Op(
        "max_pool1d",
        (
            *POOLS_1D,
            sample(away(2, 3, 9), 3, 2, 1, 2),
            sample(away(2, 3, 9), 3, 2, 1, (2,), True),
            sample(away(3, 9), 3, 2, 1),
            sample(ties(2, 3, 9), 3, 1, 1, smooth=False),
            sample(holding([NAN, -INF, INF], 1, 2, 6), 2, 1, 1, smooth=False),
        ),
        (
            *refused_by_all("max_pool1d", (2, 3, 6)),
            refusal(TypeError, "max_pool1d: kernel_size is (2, 2)", away(2, 3, 6), (2, 2)),
            refusal(TypeError, "max_pool1d: dilation is (1, 1)", away(2, 3, 6), 2, dilation=(1, 1)),
        ),
    ),
    Op(
        "avg_pool2d",
        (
            *POOLS,
            sample(real(2, 3, 7, 7), 3, 2, 1, count_include_pad=False),
            sample(real(2, 3, 7, 7), 3, 2, 1, True, False),
            sample(real(3, 6, 7), 3, 2, 1, True, False),
        ),
        (*refused_by_all("avg_pool2d", (2, 3, 6, 6)),),
        linear=(0,),
    ),
    Op(
        "avg_pool1d",
        (
            *POOLS_1D,
            sample(real(2, 3, 7), 3, 2, 1, count_include_pad=False),
            sample(real(2, 3, 7), 3, 2, 1, True, False),
        ),
        (
            *refused_by_all("avg_pool1d", (2, 3, 6)),
            refusal(TypeError, "avg_pool1d: stride is (2, 2)", away(2, 3, 6), 2, (2, 2)),
        ),
        linear=(0,),
    ),
    Op(
        "adaptive_avg_pool2d",
        (
            sample(real(2, 3, 6, 6), 1),
            sample(real(2, 3, 7, 5), (3, 2)),
            sample(real(2, 3, 4, 5), (None, 2)),
            sample(real(2, 3, 4, 5), [3, None]),
            sample(real(2, 3, 4, 5), (None, None)),
            sample(real(2, 3, 3, 3), 5),
            sample(real(3, 7, 5), (3, 2)),
            sample(real(3, 4, 5), (None, 2)),
            sample(real(1, 1, 1), 1),
            sample(real(0, 3, 4, 4), 2),
            sample(real(2, 0, 4, 4), 2),
            sample(real(2, 3, 4, 4), 0),
            sample(real(2, 3, 4, 4), (0, 2)),
        ),
        (
            refusal(ValueError, "adaptive_avg_pool2d: input has shape (3, 3)", real(3, 3), 1),
            refusal(ValueError, "adaptive_avg_pool2d: input has shape", real(1, 1, 1, 3, 3), 1),
            refusal(ValueError, "adaptive_avg_pool2d: output_size is -1", real(1, 1, 3, 3), -1),
            refusal(ValueError, "no empty height or width", real(1, 1, 0, 3), 2),
            refusal(ValueError, "no empty height or width", real(1, 1, 3, 0), 2),
            *(
                refusal(TypeError, "adaptive_avg_pool2d: output_size is", real(1, 1, 3, 3), wrong)
                for wrong in (1.5, (1.5, None), "a", True)
            ),
            refusal(TypeError, "adaptive_avg_pool2d: input has elements int64", classes(9, 1, 3, 3), 1),
        ),
        torch=_adaptive,
        linear=(0,),
    ),
]
