"""How operands of wgmma lie in shared memory, as their descriptors say.

A descriptor (64 bits) holds a start address, two offsets, all in units of 16 bytes, and a mode. An operand has lines,
rows of A or columns of B, and 16 steps of k. It lies in chunks of 16 bytes, eight elements of 16 bits along k (K-major)
or along the lines (MN-major); addresses of chunks are sums of strides, of which bits 7 and up then turn bits 4 and up.

With W chunks in a piece of 16 W bytes that a mode turns, T elements in a chunk, and offsets named as in the manual:

    K-major    ((8, m), (T, 2)):((W T, SBO), (1, T))            no turning: ((8, m), (T, 2)):((T, SBO), (1, LBO))
    MN-major   ((T, W, m), (8, 2)):((1, T, LBO), (W T, SBO))    no turning: ((T, 1, m), (8, 2)):((1, T, SBO), (T, LBO))

Source  NVIDIA, "Parallel Thread Execution ISA", wgmma: Shared Memory Matrix Layout, Strides, Matrix Descriptor
"""

import numpy as np

__all__ = ["STEPS", "chunk_addresses", "matrix", "swizzled"]

STEPS, CHUNK = 16, 8  # steps of k in a product, and elements in a chunk
TURNED = np.array([0, 3, 2, 1])  # by the mode, bits 62 and 63: how many bits of an address are turned


def swizzled(addresses, bits):
    """Addresses with so many bits from bit 4 on turned by those from bit 7 on."""
    return addresses ^ (addresses >> 7 & (1 << bits) - 1) << 4


def chunk_addresses(descriptors, lines, across):
    """Where the chunks of operands lie: (descriptors, chunks) int64, in the order that `matrix` takes them.

    across: whether they lie along the lines (MN-major)
    """
    field = lambda low, bits: (descriptors >> np.uint64(low)).astype(np.int64) & (1 << bits) - 1
    start, leading, stride = (16 * field(low, 14)[:, None, None] for low in (0, 16, 32))
    bits = TURNED[field(62, 2)][:, None, None]
    width = 1 << bits
    if across:
        line, step = np.arange(lines // CHUNK)[:, None], np.arange(STEPS)[None, :]
        plain = line * stride + step // 8 * leading + step % 8 * 16
        turned = line % width * 16 + line // width * leading + step % 8 * width * 16 + step // 8 * stride
    else:
        line, step = np.arange(lines)[:, None], np.arange(STEPS // CHUNK)[None, :]
        plain = line // 8 * stride + line % 8 * 16 + step * leading
        turned = line // 8 * stride + line % 8 * width * 16 + step * 16
    addresses = swizzled(start + np.where(bits == 0, plain, turned), bits)
    return addresses.reshape(len(descriptors), -1)


def matrix(chunks, across):
    """Operands (descriptors, lines, 16) from their chunks (descriptors, chunks, 8)."""
    if not across:
        return chunks.reshape(len(chunks), -1, STEPS)
    return chunks.reshape(len(chunks), -1, STEPS, CHUNK).swapaxes(2, 3).reshape(len(chunks), -1, STEPS)
