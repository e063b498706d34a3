"""Pooling over windows of (N, C, H, W) arrays that lie channels last.

Sizes are pairs (vertical, horizontal). Positions number the taps of a window: p * Q + q of a P by Q window. Average
windows are tables of start, end and divisor along each axis, so that plain, ceil-mode, overridden and adaptive
averages are one kernel. The tables are NumPy's arrays whatever the device of the others; windows stand in them from one
end of the axis to the other.

Types   float16, bfloat16, float32 and float64, dbias beside the first two float32; positions
        have position_type(kernel_size)
Errors  ValueError for a shape, size or layout, TypeError for an element type
Source  PyTorch's max_pool2d, avg_pool2d and adaptive_avg_pool2d
"""

import numpy as np

from ..errors import ShapeError
from ..launcher import SUMS, check, launcher, pair, reads, wants_shape, writes
from ..toolchain import alias, backend, implementation
from .geometry import adaptive_windows, average_windows, output_shape, outputs  # noqa: F401 (users want them)

HOST, WHOLE = np.empty(0), (np.dtype(np.int64),)
IMAGES, POOLED, TAPS = "N C H W", "N C I J", "uint8 int32"
X, OUT = reads("x", IMAGES, counted=True), writes("out", POOLED, counted=True)
WINDOWS = dict(kernel_size=pair(1), stride=pair(1), padding=pair(0), dilation=pair(1))


def position_type(kernel_size):
    """The element type of positions: the smallest that numbers all taps."""
    return np.dtype(np.uint8 if kernel_size[0] * kernel_size[1] <= 256 else np.int32)


def check_windows(op, x, out, positions, *windows):
    """Refuse what max pooling by windows of these sizes, pairs, of images of shape x does not give, positions included.

    Errors  ValueError for a shape or size that does not fit, TypeError for the type of positions
    """
    floor = tuple(map(outputs, x[2:], *windows, (False, False)))
    wants_shape(op, "out", out, output_shape(op, x, *windows, out.shape[2:] != floor))
    check(op, "positions", positions, out, (position_type(windows[0]),), out.shape)


def _in_halves(positions, x, *others):
    """Whether there are CUDA kernels for such arrays of 16 bits, of which others may be None."""
    return backend(x) == "cuda" and implementation(__name__, "fits", x)(x.shape[1], positions, x, *others)


@launcher(
    X,
    OUT,
    writes("positions", POOLED, TAPS),
    native=lambda x, kernel_size, stride, padding, dilation, out, positions: _in_halves(positions, x, out),
    **WINDOWS,
)
def max_forward(x, kernel_size, stride, padding, dilation, out, positions):
    """The greatest element of each window, and which one it is.

    Math    out[n, c, i, j] = max over p, q of x[n, c, i*s - padding + p*d, j*s - padding + q*d], the first if
            several are greatest; a NaN is greater than everything, the last one if there are several
    Grads   max_input_grad
    Shapes  x (N, C, H, W); out, positions (N, C, I, J)
    """
    check_windows("max_forward", x.shape, out, positions, kernel_size, stride, padding, dilation)


@launcher(
    reads("g out?", POOLED, counted=True),
    reads("positions", POOLED, TAPS),
    writes("dx", IMAGES, counted=True),
    writes("dbias?", "C", SUMS),
    native=lambda g, out, positions, kernel_size, stride, padding, dilation, dx, *_: _in_halves(positions, g, out, dx),
    **WINDOWS,
)
def max_input_grad(g, out, positions, kernel_size, stride, padding, dilation, dx, dbias, workspace):
    """The gradient of max_forward for x; with out, that of max_forward(max(z + bias, 0)) for z and for the bias.

    Math    m = 0 where out <= 0, else g: a NaN of out passes g, as in PyTorch; m = g where out is None
            dx[n, c, h, w] = sum of m[n, c, i, j] over the windows whose position is that element
            dbias[c] = sum of m over all axes but 1
    Grads   linear in g: dg[n, c, i, j] = the element of v that positions[n, c, i, j] names
    Shapes  g, out, positions (N, C, I, J); dx (N, C, H, W); dbias (C,); out and dbias both or None
    """
    op = "max_input_grad"
    if (out is None) != (dbias is None):
        raise ShapeError(f"{op}: wants out and dbias, or neither")
    check_windows(op, dx.shape, g, positions, kernel_size, stride, padding, dilation)


def _average(op, first, x_shape, out_shape):
    """What runs averages, or their adjoint, after a look at the tables, which are NumPy's on every device."""
    kernel, sizes, counts = implementation(__name__, op, first), x_shape[2:], out_shape[2:]

    def run(source, rows, columns, result):
        for name, table, size, count in zip(("rows", "columns"), (rows, columns), sizes, counts, strict=True):
            check(op, name, table, HOST, WHOLE, (count, 3))
            if count and (table[:, 0].min() < 0 or table[:, 1].max() > size):
                raise ShapeError(f"{op}: {name} leaves the input, of size {size} along this axis")
        kernel(source, alias(rows), alias(columns), result)

    return run


@launcher(X, OUT)
def average_forward(x, rows, columns, out):
    """The average of each window of a table (see average_windows and adaptive_windows).

    Math    out[n, c, i, j] = sum of x[n, c, h, w] over rows[i, 0] <= h < rows[i, 1] and
            columns[j, 0] <= w < columns[j, 1], divided by rows[i, 2] * columns[j, 2]
    Grads   dx = average_input_grad(g, rows, columns)
    Shapes  x (N, C, H, W); rows (I, 3) and columns (J, 3) of int64; out (N, C, I, J)
    """
    return _average("average_forward", x, x.shape, out.shape)


@launcher(reads("g", POOLED, counted=True), writes("dx", IMAGES, counted=True))
def average_input_grad(g, rows, columns, dx):
    """The gradient of average_forward for x: its adjoint.

    Math    dx[n, c, h, w] = sum of g[n, c, i, j] / (rows[i, 2] * columns[j, 2]) over the windows that hold it
    Grads   linear in g: dg = average_forward(v, rows, columns)
    Shapes  g (N, C, I, J); dx (N, C, H, W)
    """
    return _average("average_input_grad", g, dx.shape, g.shape)
