"""Rung 1 of the convolution and of its two gradients: the formula, one thread an element of the result.

Letters as in the launcher. Neighbouring threads have neighbouring channels, as these lie side by side in memory.
"""

from ..matmul.cuda_plain import finish
from ..toolchain.cuda import cuda, each_float, index_of, window_at

THREADS = 256
SETTINGS = "i32 stride_h, i32 stride_w, i32 padding_h, i32 padding_w, i32 dilation_h, i32 dilation_w"


@each_float(
    f"_[:,:,:,:] x, _[:,:,:,:] w, _[:] bias, _[:,:,:,:] residual, _[:,:,:,:] out, {SETTINGS}, i32 relu",
    threads=THREADS,
)
def plain_forward(
    x, w, bias, residual, out, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, relu
):  # fmt: skip
    """out[n, o, i, j] = sum over c, p, q of w[o, c, p, q] x[n, c, i*s + p*d - padding, j*s + q*d - padding]

    Traffic    an element of x is read once for each tap and channel that it serves, one of w for each pixel, as far as
               the caches do not help
    """
    number = cuda.grid(1)
    if number < out.size:
        n, i, j, o = index_of(number, out.shape[2], out.shape[3], out.shape[1])
        made = w.shape[0] // (x.shape[1] // w.shape[1])  # filters of a group
        first = o // made * w.shape[1]  # channel of the group of o
        total = out.dtype.type(0)
        for p in range(w.shape[2]):
            h = i * stride_h + p * dilation_h - padding_h
            for q in range(w.shape[3]):
                v = j * stride_w + q * dilation_w - padding_w
                if 0 <= h < x.shape[2] and 0 <= v < x.shape[3]:
                    for c in range(w.shape[1]):
                        total += x[n, first + c, h, v] * w[o, c, p, q]
        finish(out, (n, o, i, j), total, bias, o, residual, relu)


@each_float(f"_[:,:,:,:] g, _[:,:,:,:] w, _[:,:,:,:] dx, {SETTINGS}", threads=THREADS)
def plain_input_grad(g, w, dx, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w):
    """dx[n, c, h, v] = sum over o, p, q of w[o, c, p, q] g[n, o, i, j], where i*s + p*d - padding = h, likewise v

    Traffic    an element of g is read once for each tap and channel that it serves, one of w for each pixel
    """
    number = cuda.grid(1)
    if number < dx.size:
        n, h, v, c = index_of(number, dx.shape[2], dx.shape[3], dx.shape[1])
        made = w.shape[0] // (dx.shape[1] // w.shape[1])  # filters of a group
        first, own = c // w.shape[1] * made, c % w.shape[1]  # the first filter and the channel of the group of c
        total = dx.dtype.type(0)
        for p in range(w.shape[2]):
            i = window_at(h + padding_h - p * dilation_h, stride_h, g.shape[2])
            if i >= 0:
                for q in range(w.shape[3]):
                    j = window_at(v + padding_w - q * dilation_w, stride_w, g.shape[3])
                    if j >= 0:
                        for o in range(first, first + made):
                            total += g[n, o, i, j] * w[o, own, p, q]
        dx[n, c, h, v] = total


@each_float(f"_[:,:,:,:] x, _[:,:,:,:] g, _[:,:,:,:,:] dw, i32 depth, {SETTINGS}", threads=THREADS)
def plain_weight_grad(x, g, dw, depth, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w):
    """dw[s, o, c, p, q] = sum over the pixels n, i, j of slice s of g[n, o, i, j] x[n, c, i*s + p*d - padding, ...]

    blockIdx.y is the slice, of `depth` pixels but for the last one.
    Traffic    x is read O/G times, g P*Q*C/G times, as far as the caches do not help
    """
    number, part = cuda.grid(1), cuda.blockIdx.y
    filters, channels, _, across = dw.shape[1:]
    tap = number // (filters * channels)
    p, q, c, o = tap // across, tap % across, number // filters % channels, number % filters
    if p < dw.shape[3]:
        first = o // (filters // (x.shape[1] // channels)) * channels  # channel of the group of o
        total = dw.dtype.type(0)
        n, i, j, _ = index_of(part * depth, g.shape[2], g.shape[3], 1)
        for _ in range(min(depth, g.size // filters - part * depth)):
            h, v = i * stride_h + p * dilation_h - padding_h, j * stride_w + q * dilation_w - padding_w
            inside = 0 <= h < x.shape[2] and 0 <= v < x.shape[3]
            total += (x[n, first + c, h, v] if inside else dw.dtype.type(0)) * g[n, o, i, j]
            j += 1
            if j == g.shape[3]:
                i, j = i + 1, 0
            if i == g.shape[2]:
                n, i = n + 1, 0
        dw[part, o, c, p, q] = total
