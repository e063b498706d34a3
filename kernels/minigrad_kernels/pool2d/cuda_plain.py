"""The plain rung: a thread owns an element of the result and gathers what belongs there, so no two threads add to one.

Arrays are (N, H, W, C). Of a window: how many taps it has, how far the next one lies from it (down, right), how far the
first one begins outside of the input (above, before), and how far its taps lie apart; vertical, then horizontal.
Positions have an axis of bytes, the lowest first: one, or four for windows of more than 256 taps.
For averages, rows and columns are tables of windows: start, end and divisor of each.
"""

from ..toolchain.cuda import cuda, device, each_float, index_of, window_at

WINDOW = "i32 taps_down, i32 taps_right, i32 down, i32 right, i32 above, i32 before, i32 apart_down, i32 apart_right"
LEAST = float("-inf")


@device
def position_of(positions, n, i, j, c):
    tap = 0
    for byte in range(positions.shape[4]):
        tap += int(positions[n, i, j, c, byte]) << (8 * byte)
    return tap


@each_float(f"_[:,:,:,:] x, _[:,:,:,:] out, u8[:,:,:,:,:] positions, {WINDOW}", threads=256)
def max_forward_plain(
    x, out, positions, taps_down, taps_right, down, right, above, before, apart_down, apart_right
):  # fmt: skip
    """x is read once for each window that holds an element, out and positions are written once. A NaN wins."""
    number = cuda.grid(1)
    if number < out.size:
        n, i, j, c = index_of(number, out.shape[1], out.shape[2], out.shape[3])
        best, chosen, first = out.dtype.type(LEAST), 0, True
        for p in range(taps_down):
            h = i * down - above + p * apart_down
            for q in range(taps_right):
                w = j * right - before + q * apart_right
                if 0 <= h < x.shape[1] and 0 <= w < x.shape[2]:
                    v = x[n, h, w, c]
                    if first or v > best or v != v:
                        best, chosen, first = v, p * taps_right + q, False
        out[n, i, j, c] = best
        for byte in range(positions.shape[4]):
            positions[n, i, j, c, byte] = (chosen >> (8 * byte)) & 255


@each_float(f"_[:,:,:,:] g, u8[:,:,:,:,:] positions, _[:,:,:,:] dx, {WINDOW}", threads=256)
def max_input_grad_plain(
    g, positions, dx, taps_down, taps_right, down, right, above, before, apart_down, apart_right
):  # fmt: skip
    """dx is written once, a position is read for each element that its window holds, and g where it was chosen.

    Windows are walked upwards and then to the right, in which order the CPU adds too.
    """
    number = cuda.grid(1)
    if number < dx.size:
        n, h, w, c = index_of(number, dx.shape[1], dx.shape[2], dx.shape[3])
        total = dx.dtype.type(0)
        for p in range(taps_down):
            i = window_at(h + above - p * apart_down, down, g.shape[1])
            if i >= 0:
                for q in range(taps_right - 1, -1, -1):
                    j = window_at(w + before - q * apart_right, right, g.shape[2])
                    if j >= 0 and position_of(positions, n, i, j, c) == p * taps_right + q:
                        total += g[n, i, j, c]
        dx[n, h, w, c] = total


@each_float("_[:,:,:,:] x, _[:,:,:,:] out, i64[:,:] rows, i64[:,:] columns", threads=256)
def average_forward_plain(x, out, rows, columns):
    """x is read once for each window that holds an element, out is written once."""
    number = cuda.grid(1)
    if number < out.size:
        n, i, j, c = index_of(number, out.shape[1], out.shape[2], out.shape[3])
        total = out.dtype.type(0)
        for h in range(rows[i, 0], rows[i, 1]):
            for w in range(columns[j, 0], columns[j, 1]):
                total += x[n, h, w, c]
        out[n, i, j, c] = total / out.dtype.type(rows[i, 2] * columns[j, 2])


@each_float(
    "_[:,:,:,:] g, _[:,:,:,:] dx, i32[:,:] above, i32[:,:] before, i64[:,:] rows, i64[:,:] columns", threads=256
)
def average_input_grad_plain(g, dx, above, before, rows, columns):
    """g is read once for each element that a window holds, dx is written once.

    above, before: for each row and column of dx the first window that holds it, and one past the last
    """
    number = cuda.grid(1)
    if number < dx.size:
        n, h, w, c = index_of(number, dx.shape[1], dx.shape[2], dx.shape[3])
        total = dx.dtype.type(0)
        for i in range(above[h, 0], above[h, 1]):
            for j in range(before[w, 0], before[w, 1]):
                total += g[n, i, j, c] / dx.dtype.type(rows[i, 2] * columns[j, 2])
        dx[n, h, w, c] = total
