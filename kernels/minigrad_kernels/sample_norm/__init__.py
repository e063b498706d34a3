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

from ..bias.plan import cut
from ..errors import ShapeError
from ..launcher import SUMS, Call, launcher, number, reads, writes
from ..toolchain import implementation

__all__ = ["group_norm", "group_norm_grads", "layer_norm", "layer_norm_grads", "workspace"]

IMAGES, ROWS = "N C+ H+ W+", "rows K+"


def workspace(function, x_shape):
    """The bytes that "group_norm", "group_norm_grads" or "layer_norm_grads" wants for x of this shape."""
    samples, columns = x_shape[:2]
    rows = math.prod(x_shape[2:])
    if not samples * rows * columns:
        return 0
    parts = samples * cut(rows, columns).parts if function.startswith("group") else cut(samples, columns).parts
    return 16 * parts * columns + 7


_bytes = workspace  # the argument of that name hides it


def _forward(shape, columns, statistics):
    """A launcher of a forward pass."""
    arrays = reads("x", shape), reads("weight bias", columns, SUMS), writes("out", shape)
    return launcher(*arrays, writes("mean variance", statistics, "float64"), eps=number)


def _gradients(shape, columns, statistics):
    """A launcher of its gradients."""
    vectors = (
        reads("weight", columns, SUMS),
        writes("dw db", columns, SUMS),
        reads("mean variance", statistics, "float64"),
    )
    return launcher(reads("x g", shape), *vectors, writes("dx", shape), eps=number)


def _call(op, x, mean):
    groups = mean.shape[-1]
    if op.startswith("group") and x.shape[1] % groups:
        raise ShapeError(
            f"{op}: mean has shape {mean.shape}, wants (N, groups) for groups of the {x.shape[1]} channels"
        )
    return Call(_bytes(op, x.shape), implementation(__name__, op, x))


# ---- images ----------------------------------------------------------------------------------------------------------


@_forward(IMAGES, "C", "N groups+")
def group_norm(x, weight, bias, eps, out, mean, variance, workspace):
    """Each group of channels of each image shifted and scaled to mean 0 and variance 1, then each channel again.

    Math    z = (x - mean) / sqrt(variance + eps), with mean and biased variance over a group
            out = z weight + bias
    Grads   group_norm_grads
    Shapes  x and out (N, C, H, W); weight and bias (C,); mean and variance (N, groups), float64;
            workspace: workspace("group_norm", x.shape) bytes
    """
    return _call("group_norm", x, mean)


@_gradients(IMAGES, "C", "N groups+")
def group_norm_grads(g, x, mean, variance, weight, eps, dx, dw, db, workspace):
    """The gradients of group_norm.

    Math    h = g weight;  db = sum g;  dw = sum g z
            dx = (h - sum h / K - z sum (h z) / K) / sqrt(variance + eps), over groups of K
    Grads   none here: second order goes through the differentiable form
    Shapes  g, x and dx (N, C, H, W); mean and variance (N, groups), float64; weight, dw and db (C,);
            workspace: workspace("group_norm_grads", x.shape) bytes
    """
    return _call("group_norm_grads", x, mean)


# ---- rows ------------------------------------------------------------------------------------------------------------


@_forward(ROWS, "K", "rows")
def layer_norm(x, weight, bias, eps, out, mean, variance):
    """Each row shifted and scaled to mean 0 and variance 1, then each column.

    Math    as group_norm, with mean and biased variance over a row
    Grads   layer_norm_grads
    Shapes  x and out (rows, K) in C order; weight and bias (K,); mean and variance (rows,), float64
    """


@_gradients(ROWS, "K", "rows")
def layer_norm_grads(g, x, mean, variance, weight, eps, dx, dw, db, workspace):
    """The gradients of layer_norm.

    Math    as group_norm_grads, over rows of K
    Grads   none here: second order goes through the differentiable form
    Shapes  g, x and dx (rows, K) in C order; mean and variance (rows,), float64; weight, dw and db (K,);
            workspace: workspace("layer_norm_grads", x.shape) bytes
    """
    return _call("layer_norm_grads", x, mean)
