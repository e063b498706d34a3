"""Shards: the equal parts into which each batch is cut, and which of them are this rank's.

The number of shards is chosen by the user and not by the number of ranks. Data order, augmentation and dropout are
functions of step and shard, and gradients are added pairwise over the shards, so 1, 2, 4 and 8 ranks that share 8
shards compute the same bits.

Source  Li and others 2023, "EasyScale: accuracy-consistent elastic training for deep learning" (SC '23)
"""

from minigrad_kernels.errors import ShapeError

from ..core.check import integer_of
from ..data.loader import Shards


class ShardSampler:
    """Cuts batches into shards and says which are this rank's: those from rank * shards / size on.

    shards      a multiple of size; with several ranks a power of two for each, so that each holds a whole branch of
                the pairwise sum
    rank, size  this rank, and how many there are
    Errors      TypeError and ValueError for numbers that cannot be
    """

    def __init__(self, shards, rank=0, size=1):
        if integer_of("ShardSampler", "shards", shards, 1) % size:
            raise ShapeError(f"ShardSampler: shards is {shards}, wanted a multiple of the {size} ranks")
        each = shards // size
        if size > 1 and each & (each - 1):
            got = f"{shards} shards make {each} for each of {size} ranks"
            raise ShapeError(f"ShardSampler: {got}, wanted a power of two: else sums would depend on the ranks")
        self.shards, self.rank, self.size = shards, rank, size
        self.numbers = range(rank * each, (rank + 1) * each)

    def __len__(self):
        """The shards of this rank."""
        return len(self.numbers)

    def slices(self, count):
        """Where this rank's shards lie in a batch of so many; sizes differ by one at most, and may be 0."""
        return [slice(s * count // self.shards, (s + 1) * count // self.shards) for s in self.numbers]

    def cut(self, *tensors):
        """This rank's Shards of a batch that every rank has whole: tuples of parts of the tensors."""
        sizes = {len(tensor) for tensor in tensors}
        if len(sizes) != 1:
            raise ShapeError(f"ShardSampler: the parts of a batch have {sorted(sizes)} rows, wanted one number")
        (count,) = sizes
        parts = self.slices(count)
        return Shards([tuple(t[part] for t in tensors) if part.start < part.stop else None for part in parts], count)
