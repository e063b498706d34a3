"""What requests of warps cost: sectors of global memory and passes through the banks of shared memory."""

import numpy as np

from .lanes import WARP

__all__ = ["sectors", "wavefronts"]

SECTOR_BITS = 5
BANKS = 32
NOBODY = -1  # stands for the address of a lane that takes no part


def _changes(table):
    """In each sorted row: where a value stands for the first time, those of absent lanes left out."""
    new = np.empty(table.shape, np.bool_)
    new[:, 0] = table[:, 0] >= 0
    np.not_equal(table[:, 1:], table[:, :-1], out=new[:, 1:])
    return new


def sectors(lanes, addresses, size):
    """(touched, least): 32-byte sectors in the requests of all warps for `size` bytes at aligned addresses."""
    table = np.sort(lanes.to_warps(addresses, NOBODY), axis=1)
    bytes_ = np.count_nonzero(_changes(table), axis=1) * size
    touched = int(np.count_nonzero(_changes(table >> SECTOR_BITS)))
    return touched, int((-(-bytes_ >> SECTOR_BITS)).sum())


def wavefronts(lanes, addresses, size):
    """(passes, least): 32 lanes share a pass at up to 4 bytes each, 16 at 8 bytes, 8 at 16 bytes.

    A bank serves one word of 4 bytes in a pass; lanes that want the same word share it.
    """
    words = max(size // 4, 1)
    table = lanes.to_warps(addresses, NOBODY).reshape(-1, WARP // words)
    present = int(np.count_nonzero((table >= 0).any(axis=1)))
    table = table >> 2
    if words > 1:
        table = np.where(table[:, :, None] >= 0, table[:, :, None] + np.arange(words), NOBODY).reshape(-1, WARP)
    table = np.sort(table, axis=1)
    new = _changes(table)
    bank = (np.arange(len(table)) * BANKS)[:, None] + (table & BANKS - 1)
    loads = np.bincount(bank[new], minlength=len(table) * BANKS).reshape(-1, BANKS)
    return int(loads.max(axis=1).sum()), present
