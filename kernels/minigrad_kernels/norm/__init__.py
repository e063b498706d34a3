"""Batch normalisation of (N, C) arrays in C order and (N, C, H, W) arrays that lie channels last,
and rows brought to mean 0 and variance 1.

Statistics run over all axes but the channels, of which each has `count` elements; those of rows over each row.
Workspaces are bytes, or a function (bytes, array) that gives so many for calls with such arrays, as a pool does.

Types   float32 and float64; matrices also float16 and bfloat16, beside which statistics, parameters and their
        gradients are float32; the CPU takes sums of float32 in float64 every few rows, a GPU in float32 throughout
Errors  ValueError for a shape, layout or workspace, TypeError for an element type
Source  Ioffe and Szegedy 2015; for rows Ba, Kiros and Hinton 2016, "Layer normalization"
"""

import functools
import math

from ..bias.plan import ALIGNMENT, cut
from ..errors import ShapeError
from ..toolchain import alias, implementation
from ..toolchain.arguments import (
    check_array,
    check_floats,
    check_one_kind,
    check_output,
    rows,
    type_of_sums,
    workspace_of,
)
from ..toolchain.widening import on_cuda, widened

__all__ = [
    "batch_norm_grads",
    "batch_normalize",
    "batch_statistics",
    "standardize",
    "standardize_grad",
    "workspace",
]


@functools.lru_cache(maxsize=1024)
def _workspace(x_shape):
    channels = max(x_shape[1], 1)
    count = math.prod(x_shape) // channels
    return 16 * (cut(count, channels).parts if count else 0) * channels + ALIGNMENT - 1


def workspace(function, x_shape):
    """The bytes that "batch_statistics" or "batch_norm_grads" wants for x of this shape: two sums of each part."""
    return _workspace(x_shape)


def _space(op, space, x):
    return workspace_of(op, space, workspace(op, x.shape), "norm.workspace", x)


def _matrix(op, name, x):
    """x as a matrix of (rows, channels)."""
    check_floats(op, name, x)
    if x.ndim not in (2, 4) or x.shape[1] < 1:
        raise ShapeError(f"{op}: {name} has shape {x.shape}, wants (N, C) or (N, C, H, W) with at least one channel")
    return rows(op, name, x)


def _vector(op, name, array, x, check=check_array):
    if type(array) is not type(x):
        check_one_kind(op, {"x": x, name: array})
    check(op, name, array, (x.shape[1],), type_of_sums(x))
    if not array.flags.c_contiguous:
        raise ShapeError(f"{op}: {name} has strides {array.strides}, wants C order")
    return alias(array)


def _in_halves(x, *others):
    """Whether there are CUDA kernels for such arrays of 16 bits."""
    alike = [array for array in others if getattr(array, "shape", None) == x.shape]
    return on_cuda(x) and x.ndim in (2, 4) and implementation(__name__, "fits", x)(x, *alike)


@widened("x", native=_in_halves)
def batch_statistics(x, mean, variance, workspace, running_mean=None, running_var=None, momentum=0.0):
    """The mean and the biased variance of each channel, accurate where a mean is far larger than the deviation too.

    Running statistics, where they are given, are updated in place by the same pass.

    Math    mean[c] = sum x / count;  variance[c] = sum (x - mean[c])**2 / count
            running_mean = (1 - momentum) running_mean + momentum mean
            running_var = (1 - momentum) running_var + momentum variance count / (count - 1)
    Grads   as part of batch_norm_grads
    Shapes  x (N, C) or (N, C, H, W); mean, variance, running_mean and running_var (both or None) (C,);
            workspace: workspace("batch_statistics", x.shape) bytes
    """
    op = "batch_statistics"
    kernel = implementation(__name__, op, x)
    matrix = _matrix(op, "x", x)
    vectors = [_vector(op, n, a, x, check_output) for n, a in (("mean", mean), ("variance", variance))]
    space = _space(op, workspace, x)
    has_running = running_mean is not None
    if has_running != (running_var is not None):
        raise ShapeError(f"{op}: wants running_mean and running_var, or neither")
    if has_running and matrix.shape[0] < 2:
        raise ShapeError(f"{op}: x has shape {x.shape}, wants two elements a channel for running statistics")
    running = [running_mean, running_var] if has_running else vectors  # which stand for what is not there
    running = [
        _vector(op, n, a, x, check_output) for n, a in zip(("running_mean", "running_var"), running, strict=True)
    ]
    kernel(matrix, *vectors, space, *running, has_running, float(momentum))


def _optional(op, name, array, x):
    """(vector, whether there is one); any vector of the right type stands for None."""
    return (None, False) if array is None else (_vector(op, name, array, x), True)


def _optional_matrix(op, name, array, x, check=check_array):
    """A matrix as x, or None."""
    if array is None:
        return None
    if type(array) is not type(x):
        check_one_kind(op, {"x": x, name: array})
    check(op, name, array, x.shape, x.dtype)
    return _matrix(op, name, array)


@widened("x residual", "out", native=_in_halves)
def batch_normalize(x, mean, variance, weight, bias, eps, residual, relu, out):
    """x normalised by given statistics, then perhaps added to another array, then perhaps its positive part.

    Math    z = (x - mean) / sqrt(variance + eps) * weight + bias [+ residual], weight 1 and bias 0 where None
            out = max(z, 0) if relu, else z; NaN stays NaN
    Grads   training (mean and variance of x itself): batch_norm_grads
    Shapes  x, residual (or None) and out (N, C) or (N, C, H, W); mean, variance, weight, bias (C,); relu a bool
    """
    op = "batch_normalize"
    kernel = implementation(__name__, op, x)
    if type(out) is not type(x):
        check_one_kind(op, {"x": x, "out": out})
    matrix = _matrix(op, "x", x)
    check_output(op, "out", out, x.shape, x.dtype)
    mean, variance = _vector(op, "mean", mean, x), _vector(op, "variance", variance, x)
    (weight, has_weight), (bias, has_bias) = _optional(op, "weight", weight, x), _optional(op, "bias", bias, x)
    affine = weight if has_weight else mean, has_weight, bias if has_bias else mean, has_bias
    residual = _optional_matrix(op, "residual", residual, x)
    kernel(matrix, mean, variance, *affine, float(eps), residual, bool(relu), _matrix(op, "out", out))


@widened("g x out", "dx dresidual", native=_in_halves)
def batch_norm_grads(g, x, mean, variance, weight, eps, out, dx, dw, db, dresidual, workspace):
    """The gradients of batch_normalize where mean and variance are those of x itself.

    Math    m = 0 where out <= 0, else g (g itself where out is None: there was no ReLU)
            normal = (x - mean) / sqrt(variance + eps);  db = sum m;  dw = sum m * normal;  dresidual = m
            dx = weight / sqrt(variance + eps) * (m - db / count - normal * dw / count)
    Grads   none here: second order goes through the differentiable form
    Shapes  g, x, dx (N, C) or (N, C, H, W), and so out and dresidual, or None; without out dx may be None: the sums
            alone; mean, variance, weight (or None), dw, db (C,);
            workspace: workspace("batch_norm_grads", x.shape) bytes
    Errors  ValueError also for dresidual without out: it would be g
    """
    op = "batch_norm_grads"
    kernel = implementation(__name__, op, x)
    if type(g) is not type(x):
        check_one_kind(op, {"x": x, "g": g})
    check_array(op, "g", g, x.shape, x.dtype)
    matrices = _matrix(op, "g", g), _matrix(op, "x", x)
    gradient = _optional_matrix(op, "dx", dx, x, check_output)
    mean, variance = _vector(op, "mean", mean, x), _vector(op, "variance", variance, x)
    weight, has_weight = _optional(op, "weight", weight, x)
    rectified = _optional_matrix(op, "out", out, x)
    masked = _optional_matrix(op, "dresidual", dresidual, x, check_output)
    if rectified is None and masked is not None:
        raise ShapeError(f"{op}: dresidual is given without out, and would be g; wants None")
    if rectified is not None and gradient is None:
        raise ShapeError(f"{op}: dx is None beside out; wants an array")
    outputs = gradient, _vector(op, "dw", dw, x, check_output), _vector(op, "db", db, x, check_output)
    space = _space(op, workspace, x)
    affine = weight if has_weight else mean, has_weight
    kernel(*matrices, mean, variance, *affine, float(eps), rectified, *outputs, masked, space)


def _rows(op, inputs, outputs):
    """Views of matrices in C order, all alike, and of scale, which has an element for each row."""
    name, first = next(iter(inputs.items()))
    check_floats(op, name, first)
    if first.ndim != 2 or not first.shape[1]:
        raise ShapeError(f"{op}: {name} has shape {first.shape}, wants (rows, K) with K at least 1")
    for arrays, check in ((inputs, check_array), (outputs, check_output)):
        for name, array in arrays.items():
            if type(array) is not type(first):
                check_one_kind(op, inputs | outputs)
            check(op, name, array, first.shape[:1] if name == "scale" else first.shape, first.dtype)
            if not array.flags.c_contiguous:
                raise ShapeError(f"{op}: {name} (shape {array.shape}) has strides {array.strides}, wants C order")
    return [alias(array) for array in (*inputs.values(), *outputs.values())]


@widened("x", "out")
def standardize(x, eps, out, scale):
    """Each row shifted and scaled to mean 0 and variance 1.

    Math    mean = sum x / K;  scale = 1 / sqrt(sum (x - mean)**2 / K + eps);  out = (x - mean) * scale
    Grads   standardize_grad
    Shapes  x and out (rows, K) in C order; scale (rows,)
    """
    kernel = implementation(__name__, "standardize", x)
    x, out, scale = _rows("standardize", {"x": x}, {"out": out, "scale": scale})
    kernel(x, float(eps), out, scale)


@widened("g out", "dx")
def standardize_grad(g, out, scale, dx):
    """The gradient of standardize for x, from its results.

    Math    dx = scale * (g - sum g / K - out * sum (g * out) / K)
    Grads   linear in g and self-adjoint: dg = standardize_grad(v, out, scale)
    Shapes  g, out and dx (rows, K) in C order; scale (rows,)
    """
    kernel = implementation(__name__, "standardize_grad", g)
    kernel(*_rows("standardize_grad", {"g": g, "out": out, "scale": scale}, {"dx": dx}))
