"""How CUDA kernels see a matrix product: strides in elements, a batch along one axis, and how the work is cut.

Nothing here depends on the device, so that neither do the bits of a result.
"""

from typing import NamedTuple

from ..errors import ShapeError

LIMIT = 1 << 31  # sizes are 32-bit inside kernels
MOST = 65535  # blocks in y and in z
BLOCKS = 128  # how many blocks a product should have before its sums are cut
# Of a slice of a sum: its terms at least; those that a cut must save, because adding the slices takes a launch; and
# what its terms are a multiple of. Tensor cores take a term in less time.
SLICE, SLICE_ON_CORES = (64, 256, 16), (128, 512, 32)


class Product(NamedTuple):
    """Products of M x K by K x N, one for each of some matrices.

    Strides are in elements, and 0 along axes of size 1; those of z lead to the next matrix.
    """

    matrices: int
    m: int
    n: int
    k: int
    a_z: int
    a_m: int
    a_k: int
    b_z: int
    b_k: int
    b_n: int


def steps_of(shape, strides, itemsize):
    """Strides in elements, 0 along axes of size 1."""
    return [0 if size == 1 else step // itemsize for size, step in zip(shape, strides, strict=True)]


def product_of(a_shape, a_strides, b_shape, b_strides, itemsize):
    """The Product of two stacks of matrices with equal leading axes, none of them empty but along k; None where no one
    stride leads from each matrix to the next.

    A batch that shares one b, and whose matrices a follow each other, is one product of more rows.
    Errors  ValueError for sizes that are not 32-bit
    """
    *batch, m, k = a_shape
    n, count, a_z, b_z = b_shape[-1], 1, 0, 0
    *a_batch, a_m, a_k = steps_of(a_shape, a_strides, itemsize)
    *b_batch, b_k, b_n = steps_of(b_shape, b_strides, itemsize)
    for size, a, b in zip(batch[::-1], a_batch[::-1], b_batch[::-1], strict=True):
        if count == 1:
            a_z, b_z = a, b
        elif size > 1 and (a, b) != (count * a_z, count * b_z):
            return None
        count *= size
    if count > 1 and b_z == 0 and (m == 1 or a_z == m * a_m):
        a_m = a_z if m == 1 else a_m
        m, count, a_z = m * count, 1, 0
    if max(m, n, k) >= LIMIT:
        raise ShapeError(f"matmul: got {m} rows, {n} columns and sums of {k}, wants less than {LIMIT}; split a or b")
    return Product(count, m, n, k, a_z, a_m, a_k, b_z, b_k, b_n)


# ---- tiles and slices ------------------------------------------------------------------------------------------------


def blocks_of(size, tile):
    """How many tiles cover so many rows or columns."""
    return -(-size // tile)


def side_of(p):
    """Rows and columns of the tile that suits a Product: large ones read least, small ones waste least and give more
    blocks."""
    large, middle = (p.matrices * blocks_of(p.m, side) * blocks_of(p.n, side) for side in (128, 64))
    return 64 if large * 4 > middle * 1.25 or large < BLOCKS else 128


def cut_of(terms, blocks, on_cores=False, enough=BLOCKS):
    """(slices of sums of so many terms, terms of a slice; the last may have fewer) for a result of so many blocks.

    Where the blocks are fewer than `enough` to fill a GPU, sums are cut, if they are long enough to repay it.
    """
    least, worth, multiple = SLICE_ON_CORES if on_cores else SLICE
    slices = min(enough // blocks, terms // least) if blocks else 0
    if slices > 1:
        depth = blocks_of(terms, slices * multiple) * multiple
        if terms - depth >= worth:
            return blocks_of(terms, depth), depth
    return 1, terms


def slices_of(p, side, on_cores=False):
    """(slices, terms of a slice) of the sums of a Product in square tiles."""
    return cut_of(p.k, p.matrices * blocks_of(p.m, side) * blocks_of(p.n, side), on_cores)


# ---- how operands lie ------------------------------------------------------------------------------------------------


def _along_k(lines, k, line_step, k_step, z_step, at_multiple, many):
    """Whether 128-bit loads go along k, or along the lines (rows of a, columns of b); None: they go along neither."""
    if at_multiple and z_step % many == 0:
        if k_step == 1 and k % many == 0 and line_step % many == 0:
            return True
        if line_step == 1 and lines % many == 0 and k_step % many == 0:
            return False
    return None


def layout_of(p, a_aligned, b_aligned, itemsize):
    """(whether a lies along k, whether b does), or None if one of them allows no 128-bit loads."""
    many = 16 // itemsize  # elements in 128 bits
    a = _along_k(p.m, p.k, p.a_m, p.a_k, p.a_z, a_aligned, many)
    b = _along_k(p.n, p.k, p.b_n, p.b_k, p.b_z, b_aligned, many)
    return None if a is None or b is None else (a, b)
