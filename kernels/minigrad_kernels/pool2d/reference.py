"""Pooling by definition: NumPy, float64, no tiles. See the launchers for the meaning of the arguments."""

import numpy


def _windows(x, kernel_size, stride, padding, dilation, out_size, fill, xp):
    """All elements of each window: (taps, N, C, I, J), `fill` where a tap lies outside the input."""
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out_size, stride, kernel_size, dilation, strict=True)]
    after = [max(0, r - p - n) for r, p, n in zip(reach, padding, x.shape[2:], strict=True)]
    wide = ((0, 0), (0, 0), (padding[0], after[0]), (padding[1], after[1]))
    x = xp.pad(x, wide, mode="constant", constant_values=fill)
    ends = [(o - 1) * s + 1 for o, s in zip(out_size, stride, strict=True)]
    taps = [(a * dilation[0], b * dilation[1]) for a, b in numpy.ndindex(*kernel_size)]
    return xp.stack([x[:, :, a : a + ends[0] : stride[0], b : b + ends[1] : stride[1]] for a, b in taps])


def max_forward(x, kernel_size, stride, padding, dilation, out_size, xp=numpy):
    """(out, positions): the greatest element of each window, and the number of its tap."""
    x = xp.array(x, dtype=float)
    geometry = kernel_size, stride, padding, dilation
    plain = numpy.array(getattr(x, "_value", x))  # the choice itself is not differentiated
    inside = _windows(numpy.ones(x.shape), *geometry, out_size, 0.0, numpy)
    # Taps outside lose against everything; a NaN wins, and the last one if there are several.
    rank = numpy.where(inside > 0, _windows(plain, *geometry, out_size, 0.0, numpy), -numpy.inf)
    positions = numpy.argmax(rank, axis=0)
    none = numpy.all(rank == -numpy.inf, axis=0)
    positions = numpy.where(none, numpy.argmax(inside, axis=0), positions)
    nan = numpy.isnan(rank)
    last = len(nan) - 1 - numpy.argmax(nan[::-1], axis=0)
    positions = numpy.where(nan.any(axis=0), last, positions)
    values, (n, c, i, j) = _windows(x, *geometry, out_size, 0.0, xp), numpy.indices(positions.shape)
    return values[positions, n, c, i, j], positions


def max_input_grad(g, out, positions, kernel_size, stride, padding, dilation, x_size, xp=numpy):
    """(dx, dbias): each g added to the element of x that its window chose, and the sum of g over all axes but 1.

    Where there is an out, g counts as 0 where that is not positive, or NaN.
    """
    g = xp.array(g, dtype=float)
    g = g if out is None else xp.where(numpy.array(out) <= 0, 0.0, g)
    n, c, i, j = numpy.indices(positions.shape)
    p, q = numpy.divmod(positions.astype(int), kernel_size[1])
    h = i * stride[0] - padding[0] + p * dilation[0]
    w = j * stride[1] - padding[1] + q * dilation[1]
    down, right = numpy.arange(x_size[0])[:, None], numpy.arange(x_size[1])
    here = (h[..., None, None] == down) & (w[..., None, None] == right)
    everywhere = g[..., None, None] + numpy.zeros(here.shape)
    return xp.sum(xp.where(here, everywhere, 0.0), axis=(2, 3)), xp.sum(g, axis=(0, 2, 3))


def average_forward(x, rows, columns, xp=numpy):
    """The sum over each window, divided by its row divisor times its column divisor."""
    x = xp.array(x, dtype=float)
    bands = [[xp.sum(x[:, :, a:b, c:d], axis=(2, 3)) / (m * k) for c, d, k in columns] for a, b, m in rows]
    return xp.stack([xp.stack(band, axis=2) for band in bands], axis=2)


def average_input_grad(g, rows, columns, x_size, xp=numpy):
    """Each g divided by its divisors and added to all elements of its window: the adjoint of average_forward."""
    g, (height, width), dx = xp.array(g, dtype=float), x_size, 0.0
    for i, (a, b, m) in enumerate(rows):
        for j, (c, d, k) in enumerate(columns):
            share = g[:, :, i : i + 1, j : j + 1] / (m * k) * numpy.ones((b - a, d - c))
            around = ((0, 0), (0, 0), (a, height - b), (c, width - d))
            dx = dx + xp.pad(share, around, mode="constant", constant_values=0.0)
    return dx
