"""Matrix products.

Types   float32 or float64, promoted to one; integers are multiplied as NumPy does
Errors  ValueError if sizes do not fit, TypeError for other element types
Source  Golub and Van Loan 2013, "Matrix Computations", section 1.1
"""

import math

from minigrad_kernels import matmul as kernels
from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..device import array_module
from ..primitive import primitive
from .arguments import tensor_of
from .reduce import sum
from .shape import reshape, squeeze, transpose, unsqueeze

__all__ = ["linear", "matmul"]


@primitive
def _matmul(x, y):
    """The product of two stacks of matrices."""
    shape = kernels.output_shape(x.shape, y.shape)
    dtype = device.result_dtype(x, y, op="matmul")
    x, y = (a if a.dtype == dtype else device.cast(a, dtype) for a in (x, y))
    if not device.is_floating(dtype):
        return array_module(x).matmul(x, y)
    batch, module = shape[:-2], array_module(x)
    x, y = (module.broadcast_to(a, (*batch, *a.shape[-2:])) for a in (x, y))
    return _product(x, y, None, shape)


def _product(x, y, bias, shape):
    out = device.empty(shape, x.dtype)
    bias = None if bias is None else device.contiguous(bias)
    kernels.forward(x, y, bias, out, device.workspace(kernels.workspace(x, y)))
    return out


_matmul.grads(x=lambda g, y: _matmul(g, transpose(y, -1, -2)),
              y=lambda g, x: _matmul(transpose(x, -1, -2), g))  # fmt: skip


def matmul(x, y):
    """Matrix product.

    Math    out[..., m, n] = sum_k x[..., m, k] y[..., k, n]
    Grads   dx = g y^T        dy = x^T g
    Shapes  (..., M, K), (..., K, N) -> (..., M, N); leading dimensions broadcast; an x of shape (K,) is a row, a y of
            shape (K,) a column, and their dimension disappears from out
    """
    for name, value in (("x", x), ("y", y)):
        if not tensor_of("matmul", name, value).ndim:
            raise ShapeError(f"matmul: {name} has no dimensions, wanted at least one; use * to scale")
    out = _matmul(unsqueeze(x, 0) if x.ndim == 1 else x, unsqueeze(y, 1) if y.ndim == 1 else y)
    out = squeeze(out, -1) if y.ndim == 1 else out
    return squeeze(out, -1 if y.ndim == 1 else -2) if x.ndim == 1 else out


@primitive
def _linear(x, weight, bias):
    return _product(x, weight.T, bias, (x.shape[0], weight.shape[0]))


_linear.grads(x=lambda g, weight: _matmul(g, weight),
              weight=lambda g, x: _matmul(transpose(g, 0, 1), x),
              bias=lambda g: sum(g, 0))  # fmt: skip


def linear(input, weight, bias=None):
    """An affine map of the last dimension.

    Math    out[..., o] = sum_c input[..., c] weight[o, c] + bias[o]
    Grads   dinput = g weight        dweight = g^T input        dbias = sum of g over all but the last dimension
    Shapes  input (..., C), weight (O, C), bias (O,) -> (..., O)
    Types   one floating type
    """
    for name, value in (("input", input), ("weight", weight), ("bias", bias)):
        if value is not None or name != "bias":
            tensor_of("linear", name, value)
    if not device.is_floating(weight.dtype):
        raise KindError(f"linear: weight has elements {weight.dtype}, wanted floating ones")
    if weight.ndim != 2 or not input.ndim or input.shape[-1] != weight.shape[1]:
        raise ShapeError(f"linear: input has shape {input.shape}, weight {weight.shape}; wanted (..., C) and (O, C)")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"linear: bias has shape {bias.shape}, wanted {weight.shape[:1]}")
    for name, value in (("input", input), ("bias", bias)):
        if value is not None and value.dtype != weight.dtype:
            raise KindError(f"linear: {name} has elements {value.dtype}, weight {weight.dtype}; wanted one type")
    rows = input if input.ndim == 2 else reshape(input, (math.prod(input.shape[:-1]), input.shape[-1]))
    out = _linear(rows, weight, bias)
    return out if input.ndim == 2 else reshape(out, (*input.shape[:-1], weight.shape[0]))
