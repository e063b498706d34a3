"""Convolution and its two gradients, by definition: sums over filter taps of slices of the padded input, in float64.

Letters: n image, c channel in, o channel out, h w input, i j output, p q filter tap, s stride, d dilation, G groups.
"""

import numpy as np

from ..pool2d.reference import max_forward


def _slices(tap, count, stride, dilation):
    """Where a tap of the filter reads the padded input, along one axis."""
    return slice(tap * dilation, tap * dilation + (count - 1) * stride + 1, stride)


def _window(padded, p, q, i, j, stride, dilation):
    return padded[:, :, _slices(p, i, stride[0], dilation[0]), _slices(q, j, stride[1], dilation[1])]


def _pad(x, padding, xp):
    vertical, horizontal = padding
    return xp.pad(x, ((0, 0), (0, 0), (vertical, vertical), (horizontal, horizontal)), mode="constant")


def _output(size, kernel, stride, padding, dilation):
    return tuple((size[k] + 2 * padding[k] - dilation[k] * (kernel[k] - 1) - 1) // stride[k] + 1 for k in (0, 1))


def _spread(array, step, axis, xp):
    """Put step - 1 zeros between neighbours along an axis."""
    shape = array.shape
    single = array.reshape(*shape[: axis + 1], 1, *shape[axis + 1 :])
    zeros = xp.zeros((*shape[: axis + 1], step - 1, *shape[axis + 1 :]))
    spread = xp.concatenate([single, zeros], axis=axis + 1).reshape(
        *shape[:axis], shape[axis] * step, *shape[axis + 1 :]
    )
    return spread[(slice(None),) * axis + (slice(0, (shape[axis] - 1) * step + 1),)]


def _grouped(array, groups, axis):
    """Split the channels of an axis into (groups, channels of a group)."""
    shape = array.shape
    return array.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def forward(x, w, bias, relu, stride, padding, dilation, groups, xp=np, residual=None):
    """out[n,o,i,j] = bias[o] + sum_{c,p,q} x[n, c, i*s + p*d - padding, j*s + q*d - padding] * w[o,c,p,q]

    With a residual, an array like out, that is added; with relu, the positive part of all.

    Shapes  x (N, C, H, W), w (O, C/G, P, Q), bias None or (O,), out (N, O, I, J); c runs over the group of o
    """
    x, w = xp.array(x, dtype=np.float64), xp.array(w, dtype=np.float64)
    kernel = w.shape[2:]
    i, j = _output(x.shape[2:], kernel, stride, padding, dilation)
    padded, filters = _pad(x, padding, xp), _grouped(w, groups, 0)
    out = xp.zeros((x.shape[0], groups, w.shape[0] // groups, i, j))
    for p, q in np.ndindex(*kernel):
        window = _grouped(_window(padded, p, q, i, j, stride, dilation), groups, 1)
        out = out + xp.einsum("ngcij,goc->ngoij", window, filters[..., p, q])
    out = out.reshape(x.shape[0], w.shape[0], i, j)
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
    """dx: every g[n,o,i,j] * w[o,c,p,q] is added where forward read x; size is (H, W) of x."""
    g, w = xp.array(g, dtype=np.float64), xp.array(w, dtype=np.float64)
    n, _, i, j = g.shape
    gradients, filters = _grouped(g, groups, 1), _grouped(w, groups, 0)
    height, width = (length + 2 * pad for length, pad in zip(size, padding, strict=True))
    padded = xp.zeros((n, groups * w.shape[1], height, width))
    for p, q in np.ndindex(*w.shape[2:]):
        part = xp.einsum("ngoij,goc->ngcij", gradients, filters[..., p, q]).reshape(n, groups * w.shape[1], i, j)
        part = _spread(_spread(part, stride[0], 2, xp), stride[1], 3, xp)
        before = p * dilation[0], q * dilation[1]
        after = height - before[0] - part.shape[2], width - before[1] - part.shape[3]
        border = [(0, 0), (0, 0), (before[0], after[0]), (before[1], after[1])]
        padded = padded + xp.pad(part, border, mode="constant")
    return padded[:, :, padding[0] : height - padding[0], padding[1] : width - padding[1]]


def weight_grad(g, x, stride, padding, dilation, groups, kernel, xp=np):
    """dw[o,c,p,q] = sum_{n,i,j} g[n,o,i,j] * x[n, c, i*s + p*d - padding, j*s + q*d - padding]; kernel is (P, Q)."""
    g, x = xp.array(g, dtype=np.float64), xp.array(x, dtype=np.float64)
    i, j = g.shape[2:]
    padded, gradients = _pad(x, padding, xp), _grouped(g, groups, 1)
    taps = []
    for p, q in np.ndindex(*kernel):
        window = _grouped(_window(padded, p, q, i, j, stride, dilation), groups, 1)
        taps.append(xp.einsum("ngoij,ngcij->goc", gradients, window))
    stacked = xp.stack(taps, axis=-1)
    return stacked.reshape(g.shape[1], x.shape[1] // groups, *kernel)
