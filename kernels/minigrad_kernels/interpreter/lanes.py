"""Which threads run: the geometry of a batch of blocks, and sets of lanes. A lane is one thread of one block of it."""

from functools import cached_property

import numpy as np

WARP = 32
BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)  # of each lane in a mask


class Geometry:
    """Numbers of every lane, in the order of blocks and threads.

    set_blocks says which blocks of the grid they are, for each batch anew.
    """

    def __init__(self, grid, block, blocks):
        self.grid, self.block, self.blocks = grid, block, blocks
        self.threads = block[0] * block[1] * block[2]
        self.lanes = lanes = blocks * self.threads
        self.warps_per_block = -(-self.threads // WARP)
        self.warps = blocks * self.warps_per_block
        number = np.arange(lanes)
        self.block_of = number // self.threads
        self.thread = number % self.threads
        self.lane = self.thread % WARP
        self.warp_in_block = self.thread // WARP
        self.warp = self.block_of * self.warps_per_block + self.warp_in_block
        self.place = self.warp * WARP + self.lane  # in a table of whole warps
        self.thread_index = _split(self.thread, block)
        self.block_index = [np.zeros(lanes, np.uint32) for _ in range(3)]
        self.everyone = Lanes(self, number)

    def set_blocks(self, first):
        """The blocks of the batch are those of the grid from number `first` on."""
        self.block_in_grid = self.block_of + first
        for array, values in zip(self.block_index, _split(self.block_in_grid, self.grid), strict=True):
            array[:] = values

    def name(self, lane):
        """A thread in words."""
        thread, block = (tuple(int(axis[lane]) for axis in index) for index in (self.thread_index, self.block_index))
        return f"thread {thread} of block {block}"


def _split(number, sizes):
    """Numbers by three axes, of which the first changes fastest."""
    x, y, _ = sizes
    return [axis.astype(np.uint32) for axis in (number % x, number // x % y, number // (x * y))]


class Lanes:
    """A set of lanes, in order. at: what subscripts arrays over all lanes; full: it is all lanes of the batch."""

    def __init__(self, geometry, index):
        self.geometry, self.index, self.count = geometry, index, len(index)
        self.full = self.count == geometry.lanes
        first, end = index[0], index[-1] + 1
        self.at = slice(int(first), int(end)) if end - first == self.count else index

    @cached_property
    def warps(self):
        """How many warps have a lane in it."""
        warp = self.geometry.warp[self.at]
        return 1 + int(np.count_nonzero(warp[1:] != warp[:-1]))

    @cached_property
    def whole(self):
        """Whether all 32 lanes of all its warps are in it."""
        return self.warps * WARP == self.count

    def only(self, mask):
        """Those at which a mask over this set is true; None if there are none."""
        if mask.all():
            return self
        index = self.index[mask]
        return Lanes(self.geometry, index) if len(index) else None

    def with_(self, other):
        """The union with a set that has no lane in common, or with None."""
        if other is None:
            return self
        index = np.concatenate([self.index, other.index])
        if len(index) == self.geometry.lanes:
            return self.geometry.everyone
        index.sort()
        return Lanes(self.geometry, index)

    # ---- tables of warps -----------------------------------------------------------------------------------------

    @cached_property
    def rows(self):
        """The place of each lane in a table of the warps that have a lane in this set."""
        warp = self.geometry.warp[self.at]
        row = np.cumsum(np.concatenate([[0], warp[1:] != warp[:-1]]))
        return row * WARP + self.geometry.lane[self.at]

    def to_warps(self, values, fill=0):
        """A table (warps, 32) of values over this set; lanes that are not in it get `fill`."""
        if self.whole:
            return values.reshape(-1, WARP)
        table = np.full(self.warps * WARP, fill, values.dtype)
        table[self.rows] = values
        return table.reshape(-1, WARP)

    def from_warps(self, table):
        """The values of this set from a table of warps."""
        if self.whole:
            return table.reshape(-1)
        return table.reshape(-1)[self.rows]


class Repeated(Lanes):
    """Lanes, each as often as it has access in one instruction: shape (rows, places), a row for what moves at once."""

    def __init__(self, lanes, shape):
        super().__init__(lanes.geometry, lanes.index.repeat(shape[0] * shape[1] // lanes.count))
        self.at, self.shape = self.index, shape

    def to_warps(self, values, fill=0):
        return values.reshape(self.shape)
