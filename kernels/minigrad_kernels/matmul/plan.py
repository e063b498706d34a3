"""How CUDA kernels see a matrix product: strides in elements, a batch along one axis, and how the work is cut.

Nothing here depends on the device, so that neither do the bits of a result.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from ..errors import ShapeError

__all__ = ["Product", "cut_of", "launches", "layout_of", "most_slices", "product_of", "steps_of", "tensor_cut_of"]

LIMIT = 1 << 31  # sizes are 32-bit inside kernels
MOST = 65535  # blocks in y and in z
BLOCKS = 128  # how many blocks a product should have before its sums are cut
LEAST_DEPTH = 64  # of a slice of a sum
WORTH = 256  # steps of k that a cut must save, because adding the slices takes a launch
TENSOR_LEAST_DEPTH, TENSOR_WORTH = 128, 512  # the same on tensor cores, which take a step in less time


class Axis(NamedTuple):
    """Matrices that one stride leads along in each array."""

    size: int
    a: int
    b: int
    out: int


class Product(NamedTuple):
    """Strides in elements, 0 along axes of size 1. The last `inner` axes of the batch are z, for blockIdx.z; the host
    counts the others, whose strides in a and b are `outer`."""

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a_m: int
    a_k: int
    b_k: int
    b_n: int
    z: Axis
    inner: int
    outer: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def count(self):
        """How many matrices there are."""
        return self.z.size * prod(self.batch[: len(self.batch) - self.inner])


class Cut(NamedTuple):
    """Rows and columns of a tile, and slices of K, each of so many steps; the last may be shorter."""

    tile: tuple[int, int]
    slices: int
    depth: int


def steps_of(shape, strides, itemsize):
    """Strides in elements, 0 along axes of size 1."""
    return [0 if size == 1 else step // itemsize for size, step in zip(shape, strides, strict=True)]


@lru_cache(maxsize=1024)
def product_of(a_shape, a_strides, b_shape, b_strides, itemsize):
    """The Product of two stacks of matrices with equal leading axes, none of them empty but along k.

    A batch that shares one b, and whose matrices a follow each other, is one product of more rows.
    Errors  ValueError for sizes that are not 32-bit
    """
    *batch, m, k = a_shape
    n = b_shape[-1]
    *a_batch, a_m, a_k = steps_of(a_shape, a_strides, itemsize)
    *b_batch, b_k, b_n = steps_of(b_shape, b_strides, itemsize)
    z, inner = Axis(1, 0, 0, m * n), 0
    for size, a, b in zip(batch[::-1], a_batch[::-1], b_batch[::-1], strict=True):
        if z.size == 1:
            z = Axis(size, a, b, m * n)
        elif size != 1 and (a, b) != (z.a * z.size, z.b * z.size):
            break
        else:
            z = z._replace(size=size * z.size)
        inner += 1
    if z.size > 1 and z.b == 0 and (m == 1 or z.a == m * a_m):
        a_m = z.a if m == 1 else a_m
        m, z = m * z.size, Axis(1, 0, 0, m * z.size * n)
    if max(m, n, k) >= LIMIT:
        raise ShapeError(f"matmul: got {m} rows, {n} columns and sums of {k}, wants less than {LIMIT}; split a or b")
    outer = len(batch) - inner
    return Product(
        tuple(batch), m, n, k, a_m, a_k, b_k, b_n, z, inner, (tuple(a_batch[:outer]), tuple(b_batch[:outer]))
    )


def _tiles(m, n, tile):
    return -(-m // tile[0]) * -(-n // tile[1])


def _tile(m, n, count):
    """The tile that suits a shape: large ones read least, small ones waste least and give more blocks."""
    large, middle = (count * _tiles(m, n, (size, size)) for size in (128, 64))
    wasteful = large * 4 > middle * 1.25
    return (64, 64) if wasteful or large < BLOCKS else (128, 128)


def _cut(tile, m, n, k, count, least, worth, multiple):
    """The Cut into tiles, and into slices of at least so many steps, if that saves enough of them."""
    slices = min(BLOCKS // (count * _tiles(m, n, tile)), k // least)
    if slices > 1:
        depth = -(-k // (slices * multiple)) * multiple
        if k - depth >= worth:
            return Cut(tile, -(-k // depth), depth)
    return Cut(tile, 1, k)


@lru_cache(maxsize=1024)
def cut_of(m, n, k, count):
    """The Cut of `count` products of M x K by K x N.

    Where the tiles are too few to fill a GPU, sums are cut into slices, if they are long enough to repay it.
    """
    return _cut(_tile(m, n, count), m, n, k, count, LEAST_DEPTH, WORTH, 16)


def tensor_cut_of(m, n, k, count, wide=True):
    """The same on tensor cores; wide: whether 16 bytes of both operands travel at once, for which tiles are large."""
    return _cut((128, 128) if wide else (64, 64), m, n, k, count, TENSOR_LEAST_DEPTH, TENSOR_WORTH, 32)


def most_slices(m, n, k):
    """The slices of one product, at most, whichever kernels multiply."""
    cuts = cut_of(m, n, k, 1), tensor_cut_of(m, n, k, 1), tensor_cut_of(m, n, k, 1, wide=False)
    return max(cut.slices for cut in cuts)


# ---- how operands lie ------------------------------------------------------------------------------------------------


def _along_k(lines, k, line_step, k_step, z_steps, at_multiple, many):
    """Whether 128-bit loads go along k, or along the lines (rows of a, columns of b); None: they go along neither."""
    if k == 0:  # nothing is loaded
        return True
    if at_multiple and all(step % many == 0 for step in z_steps):
        if k_step == 1 and k % many == 0 and line_step % many == 0:
            return True
        if line_step == 1 and lines % many == 0 and k_step % many == 0:
            return False
    return None


def layout_of(p, a_aligned, b_aligned, itemsize):
    """(whether a lies along k, whether b does), or None if one of them allows no 128-bit loads."""
    many = 16 // itemsize  # elements in 128 bits
    a = _along_k(p.m, p.k, p.a_m, p.a_k, (p.z.a, *p.outer[0]), a_aligned, many)
    b = _along_k(p.n, p.k, p.b_n, p.b_k, (p.z.b, *p.outer[1]), b_aligned, many)
    return None if a is None or b is None else (a, b)


def launches(p):
    """(index of the first matrix in the batch, how many matrices) for each launch."""
    outer = len(p.batch) - p.inner
    if not outer and p.z.size <= MOST:
        yield (0,) * p.inner, p.z.size
        return
    for place in np.ndindex(*p.batch[:outer]):
        for first in range(0, p.z.size, MOST):
            index = *place, *np.unravel_index(first, p.batch[outer:])
            yield tuple(map(int, index)), min(MOST, p.z.size - first)
