"""Rows for pool2d: windows that overlap, leave gaps, leave the input and run over it; channels about a vector."""

from itertools import product

import numpy as np

from minigrad_kernels.bias.plan import LINES
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.pool2d import adaptive_windows, average_windows, output_shape, position_type
from minigrad_kernels.toolchain.pooling import LANES

from . import KernelCase, Output

TERMS = 16 + LINES  # of a sum over windows, taken in parts


def some_positions(x_shape, geometry, out):
    """A kind: for each window the number of any tap that lies inside the input."""
    kernel_size, stride, padding, dilation = geometry

    def inside(rng, axis):
        """Taps along one axis, (windows, draws)."""
        starts = np.arange(out[axis + 2]) * stride[axis] - padding[axis]
        taps = starts[:, None] + np.arange(kernel_size[axis]) * dilation[axis]
        good = (taps >= 0) & (taps < x_shape[axis + 2])
        return [rng.choice(np.flatnonzero(row), out[:2]) for row in good]

    def draw(rng, shape):
        p = np.stack(inside(rng, 0), -1).reshape(*shape[:3], 1)
        q = np.stack(inside(rng, 1), -1).reshape(*shape[:2], 1, shape[3])
        return (p * kernel_size[1] + q).astype(position_type(kernel_size))

    return draw


def maximum(x, kernel_size, stride, padding=(0, 0), dilation=(1, 1), ceil_mode=False):
    """max_forward and max_input_grad, and the latter with a ReLU and the gradient of a bias before it."""
    params = dict(kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)
    geometry, image = tuple(params.values()), CHANNELS_LAST
    out = output_shape("max_pool2d", x, *geometry, ceil_mode)
    draw = some_positions(x, geometry, out)
    windows = -(-kernel_size[0] * dilation[0] // stride[0]) * -(-kernel_size[1] * dilation[1] // stride[1])

    def case(function, shapes, outputs, nan=(0,), **settings):
        settings |= dict(layouts=(image,) * len(shapes), nan=nan if x[0] else ())
        return KernelCase("pool2d", function, shapes, params, outputs, **settings)

    def grad(g_out, outputs, **settings):
        settings |= dict(kinds=("float", "float", draw), workspace=True)
        settings |= dict(reference_params={"x_size": x[2:]}, absent=(None,) * (2 - len(outputs)))
        return case("max_input_grad", (out, g_out, out), outputs, (0, 1) if g_out else (0,), **settings)

    results = Output(out, image), Output(out, image, str(position_type(kernel_size)))
    dx = Output(x, image)
    return [
        case("max_forward", (x,), results, reference_params={"out_size": out[2:]}),
        grad(None, (dx,), terms=windows),
        grad(out, (dx, Output(x[1:2])), relative=True, terms=windows + TERMS),
    ]


class AverageCase(KernelCase):
    """A row whose params are tables, which stay on the host; named by their sizes."""

    def __str__(self):
        windows = " ".join(f"{name}={len(table)}" for name, table in self.params.items())
        return f"{self.family}.{self.function} {'x'.join(map(str, self.shapes[0]))} {windows}"


def average(x, rows, columns):
    """average_forward and average_input_grad of one pair of tables."""
    out, image = (*x[:2], len(rows), len(columns)), CHANNELS_LAST
    terms = int((rows[:, 1] - rows[:, 0]).max() * (columns[:, 1] - columns[:, 0]).max()) + 1
    exact = all(d & (d - 1) == 0 for d in np.outer(rows[:, 2], columns[:, 2]).flat)
    settings = dict(layouts=(image,), terms=terms, exact=exact, nan=(0,) if x[0] else ())

    def case(function, shape, output, **extra):
        tables = dict(rows=rows, columns=columns)
        return AverageCase("pool2d", function, (shape,), tables, (Output(output, image),), **settings, **extra)

    return [case("average_forward", x, out), case("average_input_grad", out, x, reference_params={"x_size": x[2:]})]


def plain(x, kernel, stride, padding=0, ceil_mode=False, include=True, divisor=None):
    windows = [
        average_windows(size, kernel, stride, padding, ceil_mode, include, d)
        for size, d in zip(x[2:], (divisor, divisor and 1), strict=True)
    ]
    return average(x, *windows)


def adaptive(x, out):
    return average(x, *(adaptive_windows(size, o) for size, o in zip(x[2:], out, strict=True)))


ROWS = [
    *(maximum((2, c, 6, 8), (2, 2), (2, 2)) for c in (1, 3, LANES - 1, LANES, LANES + 1, 2 * LANES, 37)),
    *(
        maximum((2, 5, 9, 10), (3, 2), stride, padding, dilation, ceil_mode)
        for stride, padding, dilation, ceil_mode in product(
            [(1, 1), (2, 3)], [(0, 0), (1, 1)], [(1, 1), (2, 1)], [False, True]
        )
    ),
    # Windows that do not overlap: in gaps, in the padding, over the input; few channels and many.
    *(maximum((3, c, 7, 9), (2, 3), stride) for c in (2, 6, 17, 100) for stride in ((2, 3), (3, 4))),
    *(maximum((2, c, 8, 9), (2, 2), (3, 2), (1, 1), (2, 1), ceil_mode=True) for c in (6, 17)),
    maximum((70, 8, 2, 2), (2, 2), (2, 2)),  # more rows than parts
    # Four channels at a time: windows that overlap, leave gaps, leave the input; taps that lie apart.
    maximum((2, 8, 9, 10), (3, 3), (2, 2), (1, 1)),
    maximum((3, 4, 9, 10), (3, 2), (1, 1), (1, 1), (2, 3)),
    maximum((2, 12, 7, 9), (2, 3), (3, 1), (1, 1), (1, 2), ceil_mode=True),
    maximum((1, 4, 11, 7), (3, 3), (5, 4)),
    maximum((1, 8, 20, 20), (17, 16), (3, 2)),
    maximum((1, 4, 18, 17), (16, 16), (2, 1), (8, 8)),  # as many taps as a byte can number
    maximum((1, 1, 1, 1), (1, 1), (1, 1)),
    maximum((0, 3, 4, 4), (2, 2), (2, 2)),
    maximum((1, 2, 5, 7), (5, 7), (1, 1)),
    maximum((2, 3, 1, 7), (3, 2), (3, 2), ceil_mode=True),  # no window but in ceil mode
    *(plain((2, c, 6, 8), 2, 2) for c in (1, LANES - 1, LANES, LANES + 1, 33)),
    *(
        plain((2, 5, 9, 10), 3, 2, 1, ceil_mode, include, divisor)
        for ceil_mode, include, divisor in product([False, True], [False, True], [None, 4])
    ),
    *(plain((2, 8, 9, 10), 3, 2, 1, True, include, None) for include in (False, True)),
    plain((3, 4, 11, 7), 3, 1),
    plain((0, 3, 4, 4), 2, 2),
    *(adaptive((2, c, 7, 9), out) for c in (4, 5) for out in ((1, 1), (3, 4), (7, 9), (10, 2))),
]

CASES = [case for row in ROWS for case in row]
