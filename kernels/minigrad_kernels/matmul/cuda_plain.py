"""Rung 1 of the matrix product: the formula, one thread an element of out.

Operands are stacks of matrices with any strides; blockIdx.z counts the matrices.
"""

from ..toolchain.cuda import cuda, device, each_float

THREADS = 256


@device
def finish(out, place, total, bias, column, residual, relu):
    """out[place] = total + bias + residual, then ReLU; a bias or a residual without elements is left out."""
    if bias.size:
        total += bias[column]
    if residual.size:
        total += residual[place]
    if relu and total <= 0:  # so that NaN passes
        total = out.dtype.type(0)
    out[place] = total


@each_float("_[:,:,:] a, _[:,:,:] b, _[:] bias, _[:,:,:] residual, _[:,:,:] out, i32 relu", threads=THREADS)
def plain(a, b, bias, residual, out, relu):
    """out[z, i, j] = sum over k of a[z, i, k] b[z, k, j]

    Traffic    a is read N times, b M times, as far as the caches do not help
    """
    number, z = cuda.grid(1), cuda.blockIdx.z
    rows, columns = out.shape[1:]
    i, j = number // columns, number % columns
    if i < rows:
        total = out.dtype.type(0)
        for k in range(a.shape[2]):
            total += a[z, i, k] * b[z, k, j]
        finish(out, (z, i, j), total, bias, j, residual, relu)
