"""Matrix products.

Types   one type for all: a floating one, sums of products of 16 bits being float32; integers, multiplied as NumPy does
Errors  ValueError if sizes do not fit, TypeError for mixed types and for bool
Source  Golub and Van Loan 2013, "Matrix Computations", section 1.1
"""

import math

from minigrad_kernels import matmul as kernels
from minigrad_kernels.errors import KindError, ShapeError

from .. import device, fusion
from ..core.check import floats_of
from ..core.primitive import primitive
from ..core.tensor import tensor_of
from ..device import array_module
from .autocast import casting
from .conversions import through
from .elementwise.activations import relu
from .reduce import column_sums, rectified_columns, sum, total
from .shape import reshape, squeeze, transpose, unsqueeze

__all__ = ["linear", "matmul"]


@casting("lower", "bmm", "einsum", "matmul", "mm", "scaled_dot_product_attention")
@primitive
def product(input, other):
    """The product of two stacks of matrices of one type."""
    _alike("matmul", input=input, other=other)
    shape = kernels.output_shape(input.shape, other.shape)
    if not device.is_floating(input.dtype):
        return array_module(input).matmul(input, other)
    return _filled(_repeated(input, shape[:-2]), _repeated(other, shape[:-2]), None, shape)


def _alike(op, **arrays):
    """Refuse arrays that have no type in common that can be multiplied."""
    (name, first), *others = [(name, array.dtype) for name, array in arrays.items() if array is not None]
    if first.kind == "b":
        raise KindError(f"{op}: {name} has elements bool, wanted numbers; convert with {name}.to('float32')")
    for other, dtype in others:
        if dtype != first:
            hint = f"convert one, as by {name}.to('{dtype}')"
            raise KindError(f"{op}: {other} has elements {dtype}, {name} {first}; wanted one type: {hint}")


def _repeated(stack, batch):
    """The stack seen as one of `batch` matrices."""
    if stack.shape[:-2] == batch:
        return stack
    return array_module(stack).broadcast_to(stack, (*batch, *stack.shape[-2:]))


def _filled(input, other, bias, shape, relu=False):
    """The array that the kernel fills."""
    out = device.empty(shape, input.dtype, like=input)
    bias = None if bias is None else device.contiguous(bias)
    kernels.forward(input, other, bias, relu, out, device.workspace)
    return out


product.grads(input=lambda g, other: product(g, transpose(other, -1, -2)),
              other=lambda g, input: product(transpose(input, -1, -2), g))  # fmt: skip


def matmul(input, other):
    """Matrix product.

    Math    out[..., m, n] = sum_k input[..., m, k] other[..., k, n]
    Grads   dinput = g @ other^T        dother = input^T @ g
    Shapes  (..., M, K), (..., K, N) -> (..., M, N); leading dimensions broadcast; an input of shape (K,) is a row, an
            other of shape (K,) a column, and their dimension disappears from out
    """
    shape, wanted = tensor_of("matmul", "input", input).shape, tensor_of("matmul", "other", other).shape
    if not shape or not wanted or shape[-1] != wanted[max(other.ndim - 2, 0)]:
        hint = "wanted (..., M, K) and (..., K, N), or (K,); use * to scale"
        raise ShapeError(f"matmul: input has shape {shape}, other {wanted}; {hint}")
    right = other if other.ndim > 1 else unsqueeze(other, 1)
    if input.ndim > 2 == right.ndim:  # one product, not one for each matrix of the stack
        rows = reshape(input, (math.prod(shape[:-1]), shape[-1]))
        return reshape(product(rows, right), shape[:-1] + wanted[1:])
    left = input if input.ndim > 1 else unsqueeze(input, 0)
    out = product(left, right)
    out = squeeze(out, -1) if other.ndim == 1 else out
    return squeeze(out, -1 if other.ndim == 1 else -2) if input.ndim == 1 else out


@casting("lower")
@primitive
def linear_op(input, weight, bias):
    return _affine(input, weight, bias)


def _affine(input, weight, bias, relu=False):
    _alike("linear", input=floats_of("linear", "input", input), weight=weight, bias=bias)
    return _filled(input, weight.T, bias, (input.shape[0], weight.shape[0]), relu)


linear_op.grads(input=lambda g, weight: product(g, weight),
              weight=lambda g, input: product(transpose(g, 0, 1), input),
              bias=lambda g: sum(g, 0))  # fmt: skip
fusion.waits(linear_op, lambda input, weight, bias: (input.shape[0], weight.shape[0]))


@linear_op.fast_grads
def _linear_grads(g, input, weight, needs):
    grads = {}
    if "input" in needs:
        grads["input"] = _filled(g, weight, None, input.shape)
    if "weight" in needs:
        grads["weight"] = _filled(g.T, input, None, weight.shape)
    if "bias" in needs:
        grads["bias"] = column_sums(device.contiguous(g)) if g.shape[1] else total(g, (0,), False)
    return grads


@primitive
def _linear_relu(input, weight, bias):
    """relu(linear(...)) in one pass."""
    return _affine(input, weight, bias, relu=True)


_linear_relu.grads(**through(relu.rules["input"], linear_op.rules))


@_linear_relu.fast_grads
def _linear_relu_grads(g, out, input, weight, needs):
    dz, dbias = rectified_columns(device.contiguous(g), out)
    return {**_linear_grads(dz, input, weight, needs - {"bias"}), "bias": dbias}


@fusion.extends(relu, linear_op)
def _relu_of_linear(values, inplace):
    return (_linear_relu, values) if values[1].shape[0] else None  # no kernel for the gradient without columns


def linear(input, weight, bias=None):
    """An affine map of the last dimension.

    Math    out[..., o] = sum_c input[..., c] weight[o, c] + bias[o]
    Grads   dinput = g @ weight        dweight = g^T @ input        dbias = sum of g over all but the last dimension
    Shapes  input (..., C), weight (O, C), bias (O,) -> (..., O)
    Types   floating
    """
    shape, filters = tensor_of("linear", "input", input).shape, tensor_of("linear", "weight", weight).shape
    if len(filters) != 2 or not shape:
        raise ShapeError(f"linear: input has shape {shape}, weight {filters}; wanted (..., C) and (O, C)")
    if shape[-1] != filters[1]:
        found = f"input has {shape[-1]} features (shape {shape})"
        raise ShapeError(f"linear: {found}, weight expects {filters[1]} (shape {filters})")
    if bias is not None and tensor_of("linear", "bias", bias).shape != filters[:1]:
        raise ShapeError(f"linear: bias has shape {bias.shape}, wanted {filters[:1]}")
    if len(shape) == 2:
        return linear_op(input, weight, bias)
    rows = reshape(input, (math.prod(shape[:-1]), shape[-1]))
    return reshape(linear_op(rows, weight, bias), (*shape[:-1], filters[0]))
