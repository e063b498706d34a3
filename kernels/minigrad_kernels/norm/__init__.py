"""Normalisation: of batches, of groups of channels of each image, of rows.

Batches are (N, C) arrays in C order or (N, C, H, W) arrays that lie channels last: statistics run over all axes but the
channels, of which each has `count` elements. group_norm and layer_norm normalise each sample by itself, in one pass on
the CPU: their mean and variance are of float64, so that no digit of a mean far from 0 is lost between the two
directions. Other devices make the same from standardize.

Types   float32 and float64; matrices also float16 and bfloat16, beside which statistics, parameters and their
        gradients are float32; the CPU takes sums of float32 in float64 every few rows, a GPU in float32 throughout
Errors  ValueError for a shape, layout or workspace, TypeError for an element type or kind of array
Source  Ioffe and Szegedy 2015; Ba, Kiros and Hinton 2016, "Layer normalization"; Wu and He 2018, "Group normalization"
"""

from ..bias import in_halves
from ..errors import ShapeError
from ..launcher import SUMS, flag, launcher, matrix, number, reads, updates, writes

MATRIX, IMAGES, ROWS = "N+ C+ | N+ C+ H+ W+", "N+ C+ H+ W+", "rows+ K+"
ANY_ROWS = "N C+ | N C+ H W"


@launcher(
    reads("x", MATRIX, counted=True),
    writes("mean variance", "C", SUMS),
    updates("running_mean? running_var?", "C", SUMS),
    view=matrix,
    native=in_halves,
    momentum=number,
)
def batch_statistics(x, mean, variance, workspace, running_mean=None, running_var=None, momentum=0.0):
    """The mean and the biased variance of each channel, accurate where a mean is far larger than the deviation too.

    Running statistics, where they are given, are updated in place by the same pass.

    Math    mean[c] = sum x / count;  variance[c] = sum (x - mean[c])**2 / count
            running_mean = (1 - momentum) running_mean + momentum mean
            running_var = (1 - momentum) running_var + momentum variance count / (count - 1)
    Grads   as part of batch_norm_grads
    Shapes  x (N, C) or (N, C, H, W); mean, variance, running_mean and running_var (both or None) (C,)
    """
    op, has_running = "batch_statistics", running_mean is not None
    if has_running != (running_var is not None):
        raise ShapeError(f"{op}: wants running_mean and running_var, or neither")
    if has_running and x.size < 2 * x.shape[1]:
        raise ShapeError(f"{op}: x has shape {x.shape}, wants two elements a channel for running statistics")


@launcher(
    reads("x residual?", ANY_ROWS, counted=True),
    reads("mean variance weight? bias?", "C", SUMS),
    writes("out", ANY_ROWS),
    view=matrix,
    native=in_halves,
    eps=number,
    relu=flag,
)
def batch_normalize(x, mean, variance, weight, bias, eps, residual, relu, out):
    """x normalised by given statistics, then perhaps added to another array, then perhaps its positive part.

    Math    z = (x - mean) / sqrt(variance + eps) * weight + bias [+ residual], weight 1 and bias 0 where None
            out = max(z, 0) if relu, else z; NaN stays NaN
    Grads   training (mean and variance of x itself): batch_norm_grads
    Shapes  x, residual (or None) and out (N, C) or (N, C, H, W); mean, variance, weight, bias (C,); relu a bool
    """


@launcher(
    reads("x g out?", MATRIX, counted=True),
    reads("mean variance weight?", "C", SUMS),
    writes("dx dresidual?", MATRIX),
    writes("dw db", "C", SUMS),
    view=matrix,
    native=in_halves,
    eps=number,
)
def batch_norm_grads(g, x, mean, variance, weight, eps, out, dx, dw, db, dresidual, workspace):
    """The gradients of batch_normalize where mean and variance are those of x itself.

    Math    m = 0 where out <= 0, else g (g itself where out is None: there was no ReLU)
            normal = (x - mean) / sqrt(variance + eps);  db = sum m;  dw = sum m * normal;  dresidual = m
            dx = weight / sqrt(variance + eps) * (m - db / count - normal * dw / count)
    Grads   none here: second order goes through the differentiable form
    Shapes  g, x, dx (N, C) or (N, C, H, W), and so out and dresidual, or None; mean, variance, weight (or None), dw,
            db (C,)
    Errors  ValueError also for dresidual without out: it would be g
    """
    if out is None and dresidual is not None:
        raise ShapeError("batch_norm_grads: dresidual is given without out, and would be g; wants None")


@launcher(reads("x", ROWS), writes("out", ROWS), writes("scale", "rows", SUMS), eps=number)
def standardize(x, eps, out, scale):
    """Each row shifted and scaled to mean 0 and variance 1.

    Math    mean = sum x / K;  scale = 1 / sqrt(sum (x - mean)**2 / K + eps);  out = (x - mean) * scale
    Grads   standardize_grad
    Shapes  x and out (rows, K) in C order; scale (rows,)
    """


@launcher(reads("g out", ROWS), reads("scale", "rows", SUMS), writes("dx", ROWS))
def standardize_grad(g, out, scale, dx):
    """The gradient of standardize for x, from its results.

    Math    dx = scale * (g - sum g / K - out * sum (g * out) / K)
    Grads   linear in g and self-adjoint: dg = standardize_grad(v, out, scale)
    Shapes  g, out and dx (rows, K) in C order; scale (rows,)
    """


# ---- each sample by itself -------------------------------------------------------------------------------------------


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


def _check_groups(op, x, mean):
    if x.shape[1] % mean.shape[1]:
        raise ShapeError(
            f"{op}: mean has shape {mean.shape}, wants (N, groups) for groups of the {x.shape[1]} channels"
        )


@_forward(IMAGES, "C", "N groups+")
def group_norm(x, weight, bias, eps, out, mean, variance, workspace):
    """Each group of channels of each image shifted and scaled to mean 0 and variance 1, then each channel again.

    Math    z = (x - mean) / sqrt(variance + eps), with mean and biased variance over a group
            out = z weight + bias
    Grads   group_norm_grads
    Shapes  x and out (N, C, H, W); weight and bias (C,); mean and variance (N, groups), float64
    """
    _check_groups("group_norm", x, mean)


@_gradients(IMAGES, "C", "N groups+")
def group_norm_grads(g, x, mean, variance, weight, eps, dx, dw, db, workspace):
    """The gradients of group_norm.

    Math    h = g weight;  db = sum g;  dw = sum g z
            dx = (h - sum h / K - z sum (h z) / K) / sqrt(variance + eps), over groups of K
    Grads   none here: second order goes through the differentiable form
    Shapes  g, x and dx (N, C, H, W); mean and variance (N, groups), float64; weight, dw and db (C,)
    """
    _check_groups("group_norm_grads", x, mean)


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
    Shapes  g, x and dx (rows, K) in C order; mean and variance (rows,), float64; weight, dw and db (K,)
    """
