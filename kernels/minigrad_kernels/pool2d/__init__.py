"""Pooling over windows of (N, C, H, W) arrays that lie channels last.

Sizes are pairs (vertical, horizontal). Positions number the taps of a window: p * Q + q of a P by Q window. Average
windows are tables of start, end and divisor along each axis, so that plain, ceil-mode, overridden and adaptive
averages are one kernel. The tables are NumPy's arrays whatever the device of the others.

Workspaces are bytes, or a function (bytes, array) that gives so many for calls with such arrays, as a pool does.

Types   float16, bfloat16, float32 and float64, dbias beside the first two float32; positions
        have position_type(kernel_size)
Errors  ValueError for a shape, size or layout, TypeError for an element type
Source  PyTorch's max_pool2d, avg_pool2d and adaptive_avg_pool2d
"""

import numpy as np

from .. import bias
from ..checked import Checked, layouts
from ..errors import KindError, ShapeError
from ..toolchain import alias, backend, implementation
from ..toolchain.arguments import (
    check_array,
    check_floats,
    check_one_kind,
    check_output,
    nhwc,
    pair,
    type_of_sums,
    workspace_of,
)
from ..toolchain.widening import widened
from .geometry import PARTS, adaptive_windows, average_windows, output_shape, outputs

__all__ = [
    "adaptive_windows",
    "average_forward",
    "average_input_grad",
    "average_windows",
    "check_windows",
    "max_forward",
    "max_input_grad",
    "max_relu_input_grad",
    "max_select",
    "output_shape",
    "position_type",
    "workspace",
]

ALIGNMENT = 16  # bytes: what 128-bit accesses want


def position_type(kernel_size):
    """The element type of positions: the smallest that numbers all taps."""
    return np.dtype(np.uint8 if kernel_size[0] * kernel_size[1] <= 256 else np.int32)


def _geometry(op, kernel_size, stride, padding, dilation):
    return (
        pair(op, "kernel_size", kernel_size, 1),
        pair(op, "stride", stride, 1),
        pair(op, "padding", padding, 0),
        pair(op, "dilation", dilation, 1),
    )


def _check_outputs(op, x_shape, out_shape, geometry):
    """Refuse an output of another size than floor mode or ceil mode gives."""
    floor = tuple(map(outputs, x_shape[2:], *geometry, (False, False)))
    wanted = output_shape(op, x_shape, *geometry, ceil_mode=out_shape[2:] != floor)
    if out_shape != wanted:
        raise ShapeError(f"{op}: output has shape {out_shape}, wants {wanted} (in floor mode sizes {floor})")


def check_windows(op, x_shape, out_shape, kernel_size, stride, padding, dilation):
    """The four sizes as pairs, after a look that max pooling takes them and gives this shape.

    Errors  ValueError for a shape or size that does not fit, TypeError for what is no pair of integers
    """
    geometry = _geometry(op, kernel_size, stride, padding, dilation)
    _check_outputs(op, x_shape, out_shape, geometry)
    return geometry


@widened("x", "out")
def max_forward(x, kernel_size, stride, padding, dilation, out, positions):
    """The greatest element of each window, and which one it is.

    Math    out[n, c, i, j] = max over p, q of x[n, c, i*s - padding + p*d, j*s - padding + q*d], the first if
            several are greatest; a NaN is greater than everything, the last one if there are several
    Grads   max_input_grad
    Shapes  x (N, C, H, W); out, positions (N, C, I, J)
    """
    op = "max_forward"
    kernel = implementation(__name__, op, x)
    if type(out) is not type(x) or type(positions) is not type(x):
        check_one_kind(op, {"x": x, "out": out, "positions": positions})
    check_floats(op, "x", x)
    geometry = _geometry(op, kernel_size, stride, padding, dilation)
    check_output(op, "out", out, out.shape, x.dtype)
    check_output(op, "positions", positions, out.shape, position_type(geometry[0]))
    _check_outputs(op, x.shape, out.shape, geometry)
    views = nhwc(op, "out", out), nhwc(op, "positions", positions)
    kernel(nhwc(op, "x", x), *geometry, *views)


@widened("x", "out")
def max_select(x, positions, kernel_size, stride, padding, dilation, out):
    """The element of each window at a given position: linear in x, for derivatives of max_forward.

    Math    out[n, c, i, j] = x at the tap that positions[n, c, i, j] numbers
    Grads   dx = max_input_grad(g, positions)
    Shapes  as max_forward
    """
    op = "max_select"
    kernel = implementation(__name__, op, x)
    if type(positions) is not type(x) or type(out) is not type(x):
        check_one_kind(op, {"x": x, "positions": positions, "out": out})
    check_floats(op, "x", x)
    geometry = _geometry(op, kernel_size, stride, padding, dilation)
    check_array(op, "positions", positions, None, position_type(geometry[0]))
    check_output(op, "out", out, positions.shape, x.dtype)
    _check_outputs(op, x.shape, positions.shape, geometry)
    views = nhwc(op, "x", x), nhwc(op, "positions", positions)
    kernel(*views, *geometry, nhwc(op, "out", out))


@widened("g", "dx")
def max_input_grad(g, positions, kernel_size, stride, padding, dilation, dx):
    """The gradient of max_forward for x: the adjoint of max_select.

    Math    dx[n, c, h, w] = sum of g[n, c, i, j] over the windows whose position is that element
    Grads   linear in g: dg = max_select(v, positions)
    Shapes  g, positions (N, C, I, J); dx (N, C, H, W)
    """
    op = "max_input_grad"
    kernel = implementation(__name__, op, g)
    if type(positions) is not type(g) or type(dx) is not type(g):
        check_one_kind(op, {"g": g, "positions": positions, "dx": dx})
    check_floats(op, "g", g)
    geometry = _geometry(op, kernel_size, stride, padding, dilation)
    check_array(op, "positions", positions, g.shape, position_type(geometry[0]))
    check_output(op, "dx", dx, None, g.dtype)
    _check_outputs(op, dx.shape, g.shape, geometry)
    views = nhwc(op, "g", g), nhwc(op, "positions", positions)
    kernel(*views, *geometry, nhwc(op, "dx", dx))


def workspace(g):
    """The bytes that max_relu_input_grad wants for g."""
    sums = 8 * PARTS * g.shape[1] + ALIGNMENT
    if backend(g) == "cpu":
        return sums
    return g.nbytes + ALIGNMENT + bias.workspace(g.shape)


_bytes = workspace  # where an argument has that name


@widened("g out", "dx")
def max_relu_input_grad(g, out, positions, kernel_size, stride, padding, dilation, dx, dbias, workspace):
    """The gradient of max_forward of a positive part, max_forward(max(z + bias, 0)), for z and for the bias.

    Math    m = 0 where out <= 0, else g: a NaN of out passes g, as in PyTorch
            dx = max_input_grad(m, positions);  dbias[c] = sum of m over all axes but 1
    Grads   linear in g
    Shapes  g, out, positions (N, C, I, J); dx (N, C, H, W); dbias (C,) or None; workspace: workspace(g) bytes
    """
    op = "max_relu_input_grad"
    kernel = implementation(__name__, op, g)
    shapes, geometry = layouts(op, g, out, positions, dx, dbias), (kernel_size, stride, padding, dilation)
    writable = shapes and dx.flags.writeable and (dbias is None or dbias.flags.writeable)
    if not writable or not _known.found(shapes, geometry):
        checked = _check_max_relu(op, g, out, positions, geometry, dx, dbias)
        if shapes and checked == geometry:
            _known.keep(shapes, geometry, True)
        geometry = checked
    memory = workspace_of(op, workspace, _bytes(g), "pool2d.workspace", g)
    views = nhwc(op, "g", g), nhwc(op, "out", out), nhwc(op, "positions", positions)
    kernel(*views, *geometry, nhwc(op, "dx", dx), dbias, memory)


_known = Checked()


def _check_max_relu(op, g, out, positions, sizes, dx, dbias):
    """The sizes of the windows as pairs, after a look at all but layouts and the workspace."""
    arrays = {"g": g, "out": out, "positions": positions, "dx": dx, "dbias": dbias}
    check_one_kind(op, arrays)
    check_floats(op, "g", g)
    geometry = _geometry(op, *sizes)
    check_array(op, "out", out, g.shape, g.dtype)
    check_array(op, "positions", positions, g.shape, position_type(geometry[0]))
    check_output(op, "dx", dx, None, g.dtype)
    _check_outputs(op, dx.shape, g.shape, geometry)
    if dbias is not None:
        check_output(op, "dbias", dbias, g.shape[1:2], type_of_sums(g))
        if not dbias.flags.c_contiguous:
            raise ShapeError(f"{op}: dbias has strides {dbias.strides}, wants C order")
    return geometry


def _check_windows(op, x_shape, out_shape, rows, columns):
    if len(x_shape) != 4 or len(out_shape) != 4 or x_shape[:2] != out_shape[:2]:
        raise ShapeError(f"{op}: shapes {x_shape} and {out_shape}, wants (N, C, H, W) and (N, C, I, J)")
    for name, table, size, count in (
        ("rows", rows, x_shape[2], out_shape[2]),
        ("columns", columns, x_shape[3], out_shape[3]),
    ):
        if type(table) is not np.ndarray:
            kind = f"{type(table).__module__}.{type(table).__qualname__}"
            raise KindError(f"{op}: {name} is {kind}, wants numpy.ndarray on every device")
        check_array(op, name, table, (count, 3), np.int64)
        if count and (table[:, 0].min() < 0 or table[:, 1].max() > size):
            raise ShapeError(f"{op}: {name} leaves the input, of size {size} along this axis")


@widened("x", "out")
def average_forward(x, rows, columns, out):
    """The average of each window of a table (see average_windows and adaptive_windows).

    Math    out[n, c, i, j] = sum of x[n, c, h, w] over rows[i, 0] <= h < rows[i, 1] and
            columns[j, 0] <= w < columns[j, 1], divided by rows[i, 2] * columns[j, 2]
    Grads   dx = average_input_grad(g, rows, columns)
    Shapes  x (N, C, H, W); rows (I, 3) and columns (J, 3) of int64; out (N, C, I, J)
    """
    op = "average_forward"
    kernel = implementation(__name__, op, x)
    if type(out) is not type(x):
        check_one_kind(op, {"x": x, "out": out})
    check_floats(op, "x", x)
    check_output(op, "out", out, None, x.dtype)
    _check_windows(op, x.shape, out.shape, rows, columns)
    kernel(nhwc(op, "x", x), alias(rows), alias(columns), nhwc(op, "out", out))


@widened("g", "dx")
def average_input_grad(g, rows, columns, dx):
    """The gradient of average_forward for x: its adjoint.

    Math    dx[n, c, h, w] = sum of g[n, c, i, j] / (rows[i, 2] * columns[j, 2]) over the windows that hold it
    Grads   linear in g: dg = average_forward(v, rows, columns)
    Shapes  g (N, C, I, J); dx (N, C, H, W)
    """
    op = "average_input_grad"
    kernel = implementation(__name__, op, g)
    if type(dx) is not type(g):
        check_one_kind(op, {"g": g, "dx": dx})
    check_floats(op, "g", g)
    check_output(op, "dx", dx, None, g.dtype)
    _check_windows(op, dx.shape, g.shape, rows, columns)
    kernel(nhwc(op, "g", g), alias(rows), alias(columns), nhwc(op, "dx", dx))
