"""Convolution and both gradients in each type, rung by rung, beside PyTorch's cuDNN on the same GPU."""

from functools import partial

import cupy
import numpy as np

from minigrad_kernels import conv2d
from minigrad_kernels.conv2d import cuda
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from .kinds import checked, in_torch, measured, timed

LAYERS = [  # name; N, C, H (= W), O, P (= Q), stride, padding
    ("keras-cnn 1", 512, 1, 28, 32, 3, 1, 0),
    ("keras-cnn 2", 512, 32, 13, 64, 3, 1, 0),
    ("lenet 1", 512, 1, 28, 6, 5, 1, 2),
    ("lenet 2", 512, 6, 14, 16, 5, 1, 0),
    ("mnist-net 2", 512, 32, 26, 64, 3, 1, 0),
    ("resnet 64", 128, 64, 32, 64, 3, 1, 1),
    ("resnet 128", 128, 128, 16, 128, 3, 1, 1),
    ("resnet 256", 128, 256, 8, 256, 3, 1, 1),
    ("resnet 512", 128, 512, 4, 512, 3, 1, 1),
    ("resnet 64-128", 128, 64, 32, 128, 3, 2, 1),
    ("resnet 64-128, 1x1", 128, 64, 32, 128, 1, 2, 0),
    ("resnet 64, one image", 1, 64, 32, 64, 3, 1, 1),
]
SLOW = 2e9  # multiplications from which on the plain rung is not worth the time


def _laid_out(kind, shape, order):
    """Random numbers whose axes lie in this order."""
    return kind.random(*(shape[axis] for axis in order)).transpose(np.argsort(order).tolist())


def _arrays(kind, n, c, size, o, kernel, stride, padding):
    out = (size + 2 * padding - kernel) // stride + 1
    x, g = (_laid_out(kind, shape, CHANNELS_LAST) for shape in ((n, c, size, size), (n, o, out, out)))
    return x, _laid_out(kind, (o, c, kernel, kernel), FILTER), g


def _ours(direction, arrays, geometry):
    """(the result, {rung: call that makes it}); "default" is what the launcher chooses."""
    x, w, g = arrays
    inputs, like = {
        "forward": ((x, w, None, False), g),
        "input_grad": ((g, w), x),
        "weight_grad": ((g, x), w),
    }[direction]
    result = cupy.empty_like(like)
    result = cupy.ndarray(like.shape, like.dtype, result.data, like.strides)
    space = cupy.empty(conv2d.workspace(direction, x.shape, w.shape, *geometry, x.dtype, x), cupy.uint8)
    calls = {"default": partial(getattr(conv2d, direction), *inputs, *geometry, result, space)}
    for rung in cuda.RUNGS:
        calls[rung] = partial(getattr(cuda, direction), *inputs, *geometry, result, space, rung=rung)
    return result, calls


def _cudnn(direction, arrays, stride, padding):
    """Calls of PyTorch in both memory layouts, and the exact result. At its first call cuDNN looks for the best way."""
    import torch

    x, w, g = (in_torch(cupy.ascontiguousarray(array)) for array in arrays)
    both = [(x, w, g), tuple(t.to(memory_format=torch.channels_last) for t in (x, w, g))]
    mask = {"input_grad": (True, False, False), "weight_grad": (False, True, False)}.get(direction)

    def call(x, w, g):
        if direction == "forward":
            return torch.nn.functional.conv2d(x, w, None, stride, padding)
        sizes = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1
        found = torch.ops.aten.convolution_backward(g, x, w, None, *sizes, mask)
        return found[mask.index(True)]

    exact = cupy.from_dlpack(call(*(t.double() for t in (x, w, g))).contiguous())
    return {f"cudnn {name}": partial(call, *t) for name, t in zip(("NCHW", "NHWC"), both, strict=True)}, exact


def _rows(kind, wrong, name, n, c, size, o, kernel, stride, padding):
    arrays = _arrays(kind, n, c, size, o, kernel, stride, padding)
    geometry = ((stride, stride), (padding, padding), (1, 1), 1)
    work = arrays[2].size * c * kernel * kernel
    for direction in ("forward", "input_grad", "weight_grad"):
        theirs, exact = _cudnn(direction, arrays, stride, padding)
        result, calls = _ours(direction, arrays, geometry)
        if work > SLOW:
            calls.pop("plain")
        largest = float(abs(exact).max())
        off = lambda result=result, exact=exact, largest=largest: (
            float(abs(result.astype(cupy.float64) - exact).max()) / largest
        )
        case = dict(kind=kind.name, layer=name, direction=direction)
        calls = checked(case, calls, result, off, kind.worst, wrong)
        yield from timed(case, calls, theirs, "cudnn", work, 0.05)


def run(found):
    measured(found, LAYERS, _rows)
