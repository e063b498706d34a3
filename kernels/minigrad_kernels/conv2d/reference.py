"""Convolution and its two gradients, by definition: sums over filter taps of what each pixel reads, in float64.

Letters: n image, c channel in, o channel out, h w input, i j output, p q filter tap, s stride, d dilation, G groups.
"""

import numpy as np

from ..pool2d.reference import max_forward


def _forward_reads(size, made, taps, stride, padding, dilation):
    """[p, i]: the h that output i reads by the tap p, along one axis; -1 outside the input."""
    h = np.arange(made) * stride + np.arange(taps)[:, None] * dilation - padding
    return np.where((0 <= h) & (h < size), h, -1)


def _input_reads(size, made, taps, stride, padding, dilation):
    """[p, h]: the output i that reads h by the tap p, along one axis; -1 where none does."""
    reach = np.arange(size) + padding - np.arange(taps)[:, None] * dilation
    i = reach // stride
    return np.where((reach % stride == 0) & (0 <= i) & (i < made), i, -1)


def _gathered(images, reads, sizes, made, taps, settings, groups, xp):
    """(N, G, channels of a group, P, rows, Q, columns): what the taps read, 0 where that is nothing."""
    rows, columns = (reads(*axis) for axis in zip(sizes, made, taps, *settings, strict=True))
    padded = xp.pad(images, ((0, 0), (0, 0), (0, 1), (0, 1)), mode="constant")  # a row and a column of zeros, at -1
    return _grouped(padded[:, :, rows[:, :, None, None], columns], groups, 1)


def _grouped(array, groups, axis):
    """Split the channels of an axis into (groups, channels of a group)."""
    shape = array.shape
    return array.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def forward(x, w, bias, relu, stride, padding, dilation, groups, xp=np, residual=None):
    """out[n,o,i,j] = bias[o] + sum_{c,p,q} x[n, c, i*s + p*d - padding, j*s + q*d - padding] * w[o,c,p,q]

    With a residual, an array like out, that is added; with relu, the positive part of all.

    Shapes  x (N, C, H, W), w (O, C/G, P, Q), bias None or (O,), out (N, O, I, J); c runs over the group of o
    """
    x, w, settings = xp.array(x, dtype=np.float64), xp.array(w, dtype=np.float64), (stride, padding, dilation)
    sizes, taps = x.shape[2:], w.shape[2:]
    made = [(n + 2 * pad - d * (k - 1) - 1) // s + 1 for n, k, s, pad, d in zip(sizes, taps, *settings, strict=True)]
    read = _gathered(x, _forward_reads, sizes, made, taps, settings, groups, xp)
    out = xp.einsum("ngcpiqj,gocpq->ngoij", read, _grouped(w, groups, 0))
    out = out.reshape(x.shape[0], w.shape[0], *made)
    out = out if bias is None else out + xp.array(bias, dtype=np.float64).reshape(1, -1, 1, 1)
    out = out if residual is None else out + xp.array(residual, dtype=np.float64)
    return xp.where(out <= 0, 0.0, out) if relu else out


def forward_pooled(
    x, w, bias, relu, stride, padding, dilation, groups, kernel_size, pool_stride, pool_padding, pool_dilation,
    out_size, xp=np,
):  # fmt: skip
    """(out, positions): max pooling of forward, whose windows give images of out_size."""
    convolved = forward(x, w, bias, relu, stride, padding, dilation, groups, xp)
    return max_forward(convolved, kernel_size, pool_stride, pool_padding, pool_dilation, out_size, xp)


def input_grad(g, w, stride, padding, dilation, groups, size, xp=np):
    """dx: the sum of every g[n,o,i,j] * w[o,c,p,q] for which forward read x[n,c,h,w]; size is (H, W) of x."""
    g, w, settings = xp.array(g, dtype=np.float64), xp.array(w, dtype=np.float64), (stride, padding, dilation)
    read = _gathered(g, _input_reads, size, g.shape[2:], w.shape[2:], settings, groups, xp)
    dx = xp.einsum("ngophqw,gocpq->ngchw", read, _grouped(w, groups, 0))
    return dx.reshape(g.shape[0], groups * w.shape[1], *size)


def weight_grad(g, x, stride, padding, dilation, groups, kernel, xp=np):
    """dw[o,c,p,q] = sum_{n,i,j} g[n,o,i,j] * x[n, c, i*s + p*d - padding, j*s + q*d - padding]; kernel is (P, Q)."""
    g, x, settings = xp.array(g, dtype=np.float64), xp.array(x, dtype=np.float64), (stride, padding, dilation)
    read = _gathered(x, _forward_reads, x.shape[2:], g.shape[2:], kernel, settings, groups, xp)
    dw = xp.einsum("ngoij,ngcpiqj->gocpq", _grouped(g, groups, 1), read)
    return dw.reshape(g.shape[1], x.shape[1] // groups, *kernel)
