"""The gradient of a bias on the columns of a matrix together with ReLU, and sums of columns.

Matrices are (N, C) arrays in C order, or (N, C, H, W) arrays that lie channels last: their columns are the C channels
and their rows everything else. Sums are cut into parts by the shape alone and added in a fixed order, so they have
the same bits every time.

Workspaces are bytes, or a function (bytes, array) that gives so many for calls with such arrays, as a pool does.

Types   float32 and float64; matrices also float16 and bfloat16, beside which vectors are float32
Errors  ValueError for a shape, layout or workspace, TypeError for an element type or a kind of array
"""

import functools
import math

from ..checked import Checked, layouts
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
from ..toolchain.widening import widened
from .plan import ALIGNMENT, cut

__all__ = ["bias_relu_grad", "column_sums", "workspace"]

_calls = Checked()


@functools.lru_cache(maxsize=1024)
def _bytes(shape):
    columns = shape[1]
    count = math.prod(shape)
    # Room for float64, which the CPU sums in, and to move to a multiple of ALIGNMENT.
    return 8 * cut(count // columns, columns).parts * columns + ALIGNMENT - 1 if count else 0


def workspace(shape):
    """The bytes that column_sums and bias_relu_grad want for matrices of this shape, (N, C) or (N, C, H, W)."""
    return _bytes(tuple(shape))


def _matrix(op, name, x):
    check_floats(op, name, x)
    matrix = rows(op, name, x)
    if matrix.shape[1] < 1:
        raise ShapeError(f"{op}: {name} has shape {x.shape}, wants at least one column")
    return matrix


def _vector(op, name, array, x, check=check_array):
    check(op, name, array, x.shape[1:2], type_of_sums(x))
    if not array.flags.c_contiguous:
        raise ShapeError(f"{op}: {name} has strides {array.strides}, wants C order")
    return alias(array)


@widened("g out", "dx")
def bias_relu_grad(g, out, dx, dbias, workspace):
    """The gradients of out = max(x + bias, 0). Where out is NaN, g passes, as in PyTorch.

    Math    dx = 0 where out <= 0, else g;  dbias[c] = sum of dx over all axes but 1
    Grads   linear in g
    Shapes  g, out and dx (N, C) or (N, C, H, W); dbias (C,); workspace: workspace(g.shape) bytes
    """
    op = "bias_relu_grad"
    shapes = layouts(op, g, out, dx, dbias) if callable(workspace) else None
    if shapes and dx.flags.writeable and dbias.flags.writeable:
        call = _calls.found(shapes, ())
        if call is not None:
            call.run(g, out, dx, dbias, workspace(call.bytes, g) if call.bytes else None)
            return
    kernel = implementation(__name__, op, g)
    if type(out) is not type(g) or type(dx) is not type(g) or type(dbias) is not type(g):
        check_one_kind(op, {"g": g, "out": out, "dx": dx, "dbias": dbias})
    matrix = _matrix(op, "g", g)
    check_array(op, "out", out, g.shape, g.dtype)
    check_output(op, "dx", dx, g.shape, g.dtype)
    _vector(op, "dbias", dbias, g, check_output)
    matrices = matrix, _matrix(op, "out", out), _matrix(op, "dx", dx)
    if shapes:
        _calls.keep(shapes, (), implementation(__name__, "ready", g)(*matrix.shape))
    kernel(*matrices, dbias, workspace_of(op, workspace, _bytes(g.shape), "bias.workspace", g))


@widened("x")
def column_sums(x, out, workspace):
    """The sum of each column: the gradient of a bias.

    Math    out[c] = sum of x over all axes but 1
    Grads   linear: dx is g broadcast to x
    Shapes  x (N, C) or (N, C, H, W); out (C,); workspace: workspace(x.shape) bytes
    """
    op = "column_sums"
    shapes = layouts(op, x, out) if callable(workspace) else None
    if shapes and out.flags.writeable:
        call = _calls.found(shapes, ())
        if call is not None:
            call.run(x, out, workspace(call.bytes, x) if call.bytes else None)
            return
    kernel = implementation(__name__, op, x)
    if type(out) is not type(x):
        check_one_kind(op, {"x": x, "out": out})
    matrix = _matrix(op, "x", x)
    _vector(op, "out", out, x, check_output)
    if shapes:
        _calls.keep(shapes, (), implementation(__name__, "ready", x)(*matrix.shape))
    kernel(matrix, out, workspace_of(op, workspace, _bytes(x.shape), "bias.workspace", x))
