"""The plain rung of batch normalisation: one thread an element, or the sums of one column of a part.

Both directions take the same two steps. `sums_plain` adds up what the elements of a column give, and `finish_plain`
makes each element from the numbers of its column. Statistics are sums of distances from a pivot, the median of three
elements of the column, so that float32 keeps its digits where a mean is far larger than the deviation from it.
`total_statistics` and `total_grads` add up what the parts gave, for both rungs.
"""

import math

from ..bias.cuda_plain import HEIGHT, SHORT, WIDTH
from ..toolchain.cuda import cuda, device, each_float


@device
def finite(v):
    """A number as a shift: 0 for what would make NaN of every other element."""
    return v if v - v == type(v)(0) else type(v)(0)


@device
def inverse_deviation(variance, eps):
    return type(eps)(1) / math.sqrt(variance + eps)


@device
def median(a, b, c):
    low, high = min(a, b), max(a, b)
    return finite(low if c < low else high if c > high else c)


# ---- sums ------------------------------------------------------------------------------------------------------------


@each_float(
    "_[:,:] x, _[:,:] g, _[:,:] out, _[:] mean, _[:,:] sums, _[:,:] products, _[:,:] masked, i32 share", threads=256
)
def sums_plain(x, g, out, mean, sums, products, masked, share):
    """The sums of g and of g * (x - mean), g first masked by out if there was a ReLU: each is read once, and the
    masked g is written if it is wanted. Without g: of x - pivot and of its square; the pivots go into mean."""
    number, zero = cuda.grid(1), x.dtype.type(0)
    part, c = number // x.shape[1], number % x.shape[1]
    if part < sums.shape[0]:
        if g.size:
            centre = mean[c]
        else:
            centre = median(x[0, c], x[x.shape[0] // 2, c], x[x.shape[0] - 1, c])
            if part == 0:
                mean[c] = centre
        total, product, stop = zero, zero, min((part + 1) * share, x.shape[0])
        for first in range(part * share, stop, SHORT):
            short, other = zero, zero
            for r in range(first, min(first + SHORT, stop)):
                d = x[r, c] - centre
                v = g[r, c] if g.size else d
                if out.size:
                    v = zero if out[r, c] <= 0 else v
                if masked.size:
                    masked[r, c] = v
                short += v
                other += v * d
            total += short
            product += other
        sums[part, c] = total
        products[part, c] = product


@device
def totals(sums, products, column):
    """The sums over all parts of a column, for row 0 of a block's threads.

    Each block owns 32 columns: row y of its threads takes every 32nd part, then the 32 results are added pairwise. So
    many, because the loads of a thread wait for one another, and there are up to 1024 parts.
    """
    lane, y = cuda.threadIdx.x, cuda.threadIdx.y
    s = cuda.shared.array((HEIGHT, WIDTH), sums.dtype)  # lines of their own: the simulator tells arrays by their line
    q = cuda.shared.array((HEIGHT, WIDTH), sums.dtype)
    total, product = sums.dtype.type(0), sums.dtype.type(0)
    if column < sums.shape[1]:
        for p in range(y, sums.shape[0], HEIGHT):
            total += sums[p, column]
            product += products[p, column]
    s[y, lane], q[y, lane] = total, product
    half = HEIGHT // 2
    while half:
        cuda.syncthreads()
        if y < half:
            s[y, lane] += s[y + half, lane]
            q[y, lane] += q[y + half, lane]
        half //= 2
    return s[0, lane], q[0, lane]


@each_float(
    "_[:,:] sums, _[:,:] squares, _[:] mean, _[:] variance, _[:] running_mean, _[:] running_var, _ momentum, i64 rows",
    threads=WIDTH * HEIGHT,
)
def total_statistics(sums, squares, mean, variance, running_mean, running_var, momentum, rows):
    """Mean and variance from sums about the pivots, which mean holds.

    Running statistics, if there are any, are moved a share, momentum, of the way to the mean and to the unbiased
    variance.
    """
    c, real = cuda.blockIdx.x * WIDTH + cuda.threadIdx.x, mean.dtype.type
    total, squared = totals(sums, squares, c)
    if cuda.threadIdx.y == 0 and c < mean.size:
        d = total / real(rows)
        m, v = mean[c] + d, squared / real(rows) - d * d
        v = real(0) if v < 0 else v  # written so that NaN passes
        mean[c], variance[c] = m, v
        if running_mean.size:
            kept = real(1) - momentum
            running_mean[c] = kept * running_mean[c] + momentum * m
            running_var[c] = kept * running_var[c] + momentum * (v * (real(rows) / real(rows - 1)))


@each_float("_[:,:] sums, _[:,:] products, _[:] variance, _[:] dw, _[:] db, _ eps", threads=WIDTH * HEIGHT)
def total_grads(sums, products, variance, dw, db, eps):
    """db, the sum of g, and dw, that of g * (x - mean) over the deviation."""
    c = cuda.blockIdx.x * WIDTH + cuda.threadIdx.x
    total, product = totals(sums, products, c)
    if cuda.threadIdx.y == 0 and c < dw.size:
        db[c] = total
        dw[c] = product * inverse_deviation(variance[c], eps)


# ---- results ---------------------------------------------------------------------------------------------------------


@each_float(
    "_[:,:] x, _[:,:] more, _[:,:] passed, _[:] mean, _[:] variance, _[:] weight, _[:] bias, _[:] dw, _[:,:] out, "
    "_ eps, i32 relu",
    threads=256,
)
def finish_plain(x, more, passed, mean, variance, weight, bias, dw, out, eps, relu):
    """Forward, and with dw backward: x and `more`, a residual or g, are read and out is written once; up to five
    numbers of the channel are read for each element. Where `passed` is not positive, ReLU let nothing of g pass.

    Math    forward   out = (x - mean) scale weight + bias + more, scale = 1 / deviation
            backward  out = scale weight (more - bias / rows - (x - mean) scale dw / rows), where bias holds db
    """
    number = cuda.grid(1)
    r, c = number // x.shape[1], number % x.shape[1]
    if r < x.shape[0]:
        d, scale = x[r, c] - mean[c], inverse_deviation(variance[c], eps)
        gain = scale * weight[c] if weight.size else scale
        if dw.size:
            v, rows = more[r, c], x.dtype.type(x.shape[0])
            if passed.size:
                v = type(v)(0) if passed[r, c] <= 0 else v
            v = gain * ((v - bias[c] / rows) - d * (scale * dw[c] / rows))
        else:
            v = d * gain
            if bias.size:
                v += bias[c]
            if more.size:
                v += more[r, c]
        out[r, c] = type(v)(0) if relu and v <= 0 else v  # written so that NaN passes
