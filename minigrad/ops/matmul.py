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
from ..core.tensor import Tensor, tensor_of
from ..device import array_module
from .autocast import casting
from .conversions import through
from .elementwise.activations import relu
from .reduce import column_sums, rectified_columns, sum, total
from .shape import reshape, squeeze, transpose, unsqueeze

__all__ = ["linear", "matmul"]


@primitive
def product(input, other):
    """The product of two stacks of matrices of one type."""
    shape = kernels.output_shape(input.shape, other.shape)
    if not device.is_floating(input.dtype):
        return array_module(input).matmul(input, other)
    return _filled(_repeated(input, shape[:-2]), _repeated(other, shape[:-2]), None, shape)


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


def alike(op, **tensors):
    """Refuse arguments that are no Tensors or have no type in common that can be multiplied."""
    (name, first), *others = tensors.items()
    if tensor_of(op, name, first).dtype.kind == "b":
        raise KindError(f"{op}: {name} has elements bool, wanted numbers; convert with {name}.to('float32')")
    for other, value in others:
        if tensor_of(op, other, value).dtype != first.dtype:
            found = f"{other} has elements {value.dtype}, {name} {first.dtype}"
            raise KindError(f"{op}: {found}; wanted one type: convert one, as by {name}.to('{value.dtype}')")


@casting("lower")
def matmul(input, other):
    """Matrix product.

    Math    out[..., m, n] = sum_k input[..., m, k] other[..., k, n]
    Grads   dinput = g @ other^T        dother = input^T @ g
    Shapes  (..., M, K), (..., K, N) -> (..., M, N); leading dimensions broadcast; an input of shape (K,) is a row, an
            other of shape (K,) a column, and their dimension disappears from out
    """
    alike("matmul", input=input, other=other)
    for name, value in (("input", input), ("other", other)):
        if not value.ndim:
            raise ShapeError(f"matmul: {name} has no dimensions, wanted at least one; use * to scale")
    if input.shape[-1] != other.shape[max(other.ndim - 2, 0)]:
        raise ShapeError(
            f"matmul: input has shape {input.shape}, other {other.shape}; wanted (..., M, K) and (..., K, N), or (K,)"
        )
    right = other if other.ndim > 1 else unsqueeze(other, 1)
    if input.ndim > 2 == right.ndim:  # one product, not one for each matrix of the stack
        rows = reshape(input, (math.prod(input.shape[:-1]), input.shape[-1]))
        return reshape(product(rows, right), input.shape[:-1] + other.shape[1:])
    left = input if input.ndim > 1 else unsqueeze(input, 0)
    out = product(left, right)
    out = squeeze(out, -1) if other.ndim == 1 else out
    return squeeze(out, -1 if other.ndim == 1 else -2) if input.ndim == 1 else out


@primitive
def linear_op(input, weight, bias):
    return _filled(input, weight.T, bias, (input.shape[0], weight.shape[0]))


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
    return _filled(input, weight.T, bias, (input.shape[0], weight.shape[0]), relu=True)


_linear_relu.grads(**through(relu.rules["input"], linear_op.rules))


@_linear_relu.fast_grads
def _linear_relu_grads(g, out, input, weight, needs):
    dz, dbias = rectified_columns(device.contiguous(g), out)
    return {**_linear_grads(dz, input, weight, needs - {"bias"}), "bias": dbias}


@fusion.extends(relu, linear_op)
def _relu_of_linear(values, inplace):
    return (_linear_relu, values) if values[1].shape[0] else None  # no kernel for the gradient without columns


def _fits(input, weight, bias):
    """Whether these are a matrix, a matrix and a vector or None that need no look at the details, as nearly always."""
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        return False
    dtype, rows, filters = input.dtype, input.shape, weight.shape
    # the kind V is that of bfloat16
    if len(rows) != 2 or len(filters) != 2 or rows[1] != filters[1] or weight.dtype != dtype or dtype.kind not in "fV":
        return False
    return bias is None or isinstance(bias, Tensor) and bias.shape == filters[:1] and bias.dtype == dtype


@casting("lower")
def linear(input, weight, bias=None):
    """An affine map of the last dimension.

    Math    out[..., o] = sum_c input[..., c] weight[o, c] + bias[o]
    Grads   dinput = g @ weight        dweight = g^T @ input        dbias = sum of g over all but the last dimension
    Shapes  input (..., C), weight (O, C), bias (O,) -> (..., O)
    Types   floating
    """
    if _fits(input, weight, bias):
        return linear_op(input, weight, bias)
    alike("linear", input=input, weight=weight, **({} if bias is None else {"bias": bias}))
    floats_of("linear", "input", input.array)
    if weight.ndim != 2 or not input.ndim:
        raise ShapeError(f"linear: input has shape {input.shape}, weight {weight.shape}; wanted (..., C) and (O, C)")
    (*lead, features), (outputs, wanted) = input.shape, weight.shape
    if features != wanted:
        found = f"input has {features} features (shape {input.shape})"
        raise ShapeError(f"linear: {found}, weight expects {wanted} (shape {weight.shape})")
    if bias is not None and bias.shape != (outputs,):
        raise ShapeError(f"linear: bias has shape {bias.shape}, wanted {(outputs,)}")
    return reshape(linear_op(reshape(input, (math.prod(lead), features)), weight, bias), (*lead, outputs))
