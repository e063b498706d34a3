"""Normalisation of each sample by itself, in one pass: rows of matrices, and groups of channels of images.

Images lie channels last. Mean and variance are of float64, so that no digit of a mean far from 0 is lost between the
two directions. Other devices make the same from norm.standardize. Workspaces are bytes, or a function (bytes, array)
that gives so many.

Types   float32 and float64, one for all but mean and variance; matrices also float16 and bfloat16, beside which
        parameters and their gradients are float32; sums of float32 are taken in float64 every few rows
Errors  ValueError for a shape, layout or workspace, TypeError for an element type or kind of array
Source  Ba, Kiros and Hinton 2016, "Layer normalization"; Wu and He 2018, "Group normalization"
"""

import math

import numpy as np

from ..bias.plan import cut
from ..errors import ShapeError
from ..layout import CHANNELS_LAST
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_array, check_floats, check_one_kind, check_output, nhwc, workspace_of
from ..toolchain.widening import widened

__all__ = ["group_norm", "group_norm_grads", "layer_norm", "layer_norm_grads", "workspace"]

DOUBLE = np.dtype(np.float64)


def workspace(function, x_shape):
    """The bytes that "group_norm", "group_norm_grads" or "layer_norm_grads" wants for x of this shape."""
    samples, columns = x_shape[:2]
    rows = math.prod(x_shape[2:])
    if not samples * rows * columns:
        return 0
    parts = samples * cut(rows, columns).parts if function.startswith("group") else cut(samples, columns).parts
    return 16 * parts * columns + 7


# ---- what both check -------------------------------------------------------------------------------------------------


def _check(op, name, array, shape, x, dtype=None, output=False):
    """Refuse an argument that is not of this shape and of x's type, or of another."""
    if type(array) is not type(x):
        check_one_kind(op, {"x": x, name: array})
    (check_output if output else check_array)(op, name, array, shape, dtype or x.dtype)


def _vector(op, name, array, shape, x, dtype=None, output=False):
    if type(array) is type(x) and array.shape == shape and array.dtype == (dtype or x.dtype) and array.flags.carray:
        return array  # as nearly always
    _check(op, name, array, shape, x, dtype, output)
    if not array.flags.c_contiguous:
        raise ShapeError(f"{op}: {name} (shape {array.shape}) has strides {array.strides}, wants C order")
    return alias(array)


def _image(op, name, array, x, output=False):
    if type(array) is type(x) and array.shape == x.shape and array.dtype == x.dtype:
        view = array.transpose(CHANNELS_LAST)
        if view.flags.carray:
            return view  # as nearly always
    _check(op, name, array, x.shape, x, None, output)
    return nhwc(op, name, array)


def _row(op, name, array, x, output=False):
    return _vector(op, name, array, x.shape, x, None, output)


def _check_images(op, x, statistics):
    """Refuse what is no (N, C, H, W), or statistics that are not of (N, groups) for whole groups."""
    check_floats(op, "x", x)
    if x.ndim != 4 or not all(x.shape[1:]):
        raise ShapeError(f"{op}: x has shape {x.shape}, wants (N, C, H, W) with C, H and W at least 1")
    shape = getattr(statistics, "shape", None)
    groups = shape[1] if shape is not None and len(shape) == 2 else 0
    if not groups or x.shape[1] % groups:
        raise ShapeError(f"{op}: mean has shape {shape}, wants (N, groups) for groups of the {x.shape[1]} channels")
    return x.shape[0], groups


def _check_rows(op, x):
    check_floats(op, "x", x)
    if x.ndim != 2 or not x.shape[1]:
        raise ShapeError(f"{op}: x has shape {x.shape}, wants (rows, K) with K at least 1")
    return x.shape[:1]


def _forward(op, x, weight, bias, eps, out, mean, variance, shape, whole):
    vectors = [_vector(op, n, a, x.shape[1:2], x) for n, a in (("weight", weight), ("bias", bias))]
    statistics = [_vector(op, n, a, shape, x, DOUBLE, True) for n, a in (("mean", mean), ("variance", variance))]
    return whole(op, "x", x, x), *vectors, float(eps), whole(op, "out", out, x, True), *statistics


def _gradients(op, g, x, mean, variance, weight, eps, dx, dw, db, shape, whole):
    statistics = [_vector(op, n, a, shape, x, DOUBLE) for n, a in (("mean", mean), ("variance", variance))]
    weight = _vector(op, "weight", weight, x.shape[1:2], x)
    vectors = [_vector(op, n, a, x.shape[1:2], x, None, True) for n, a in (("dw", dw), ("db", db))]
    arrays = whole(op, "g", g, x), whole(op, "x", x, x), *statistics, weight
    return *arrays, float(eps), whole(op, "dx", dx, x, True), *vectors


# ---- images ----------------------------------------------------------------------------------------------------------


@widened("x", "out")
def group_norm(x, weight, bias, eps, out, mean, variance, workspace):
    """Each group of channels of each image shifted and scaled to mean 0 and variance 1, then each channel again.

    Math    z = (x - mean) / sqrt(variance + eps), with mean and biased variance over a group
            out = z weight + bias
    Grads   group_norm_grads
    Shapes  x and out (N, C, H, W); weight and bias (C,); mean and variance (N, groups), float64;
            workspace: workspace("group_norm", x.shape) bytes
    """
    op = "group_norm"
    kernel = implementation(__name__, op, x)
    shape = _check_images(op, x, mean)
    arguments = _forward(op, x, weight, bias, eps, out, mean, variance, shape, _image)
    kernel(*arguments, workspace_of(op, workspace, _bytes(op, x.shape), "sample_norm.workspace", x))


@widened("g x", "dx")
def group_norm_grads(g, x, mean, variance, weight, eps, dx, dw, db, workspace):
    """The gradients of group_norm.

    Math    h = g weight;  db = sum g;  dw = sum g z
            dx = (h - sum h / K - z sum (h z) / K) / sqrt(variance + eps), over groups of K
    Grads   none here: second order goes through the differentiable form
    Shapes  g, x and dx (N, C, H, W); mean and variance (N, groups), float64; weight, dw and db (C,);
            workspace: workspace("group_norm_grads", x.shape) bytes
    """
    op = "group_norm_grads"
    kernel = implementation(__name__, op, x)
    shape = _check_images(op, x, mean)
    arguments = _gradients(op, g, x, mean, variance, weight, eps, dx, dw, db, shape, _image)
    kernel(*arguments, workspace_of(op, workspace, _bytes(op, x.shape), "sample_norm.workspace", x))


# ---- rows ------------------------------------------------------------------------------------------------------------


@widened("x", "out")
def layer_norm(x, weight, bias, eps, out, mean, variance):
    """Each row shifted and scaled to mean 0 and variance 1, then each column.

    Math    as group_norm, with mean and biased variance over a row
    Grads   layer_norm_grads
    Shapes  x and out (rows, K) in C order; weight and bias (K,); mean and variance (rows,), float64
    """
    op = "layer_norm"
    kernel = implementation(__name__, op, x)
    shape = _check_rows(op, x)
    kernel(*_forward(op, x, weight, bias, eps, out, mean, variance, shape, _row))


@widened("g x", "dx")
def layer_norm_grads(g, x, mean, variance, weight, eps, dx, dw, db, workspace):
    """The gradients of layer_norm.

    Math    as group_norm_grads, over rows of K
    Grads   none here: second order goes through the differentiable form
    Shapes  g, x and dx (rows, K) in C order; mean and variance (rows,), float64; weight, dw and db (K,);
            workspace: workspace("layer_norm_grads", x.shape) bytes
    """
    op = "layer_norm_grads"
    kernel = implementation(__name__, op, x)
    shape = _check_rows(op, x)
    arguments = _gradients(op, g, x, mean, variance, weight, eps, dx, dw, db, shape, _row)
    kernel(*arguments, workspace_of(op, workspace, _bytes(op, x.shape), "sample_norm.workspace", x))


_bytes = workspace  # the argument of that name hides it
