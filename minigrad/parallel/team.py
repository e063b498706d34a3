"""The ranks that train one model together, as `fit` and `evaluate` see them."""

import struct

from minigrad_kernels.errors import ShapeError, StateError

from .. import device
from ..data.shards import Shards
from ..device import random
from ..tensor import Tensor
from ..train.team import Alone

__all__ = ["Together"]

WISH = struct.Struct("<?QQ")  # whether to stop; seed and step of the random numbers


class Together(Alone):
    """The ranks of a DataParallel model."""

    def __init__(self, model):
        self.model, self.world, self.shards = model, model.world, model.sampler.shards
        self.several = self.world.size > 1

    def agree(self, entries):
        self.world.agree("fit", {name: " ".join(str(text).split()) for name, text in entries.items()})

    def images(self, batches):
        if not all(isinstance(batch, Shards) for batch in batches):
            raise ShapeError(
                "fit: loader gives whole batches to a DataParallel model; make it with sampler=model.sampler"
            )
        return [batch.total for batch in batches]

    def parts(self, batches):
        total = sum(self.images(batches))
        pieces = [[part for part in shard if part is not None] or None for shard in zip(*batches, strict=True)]
        return self.model.shards(Shards(pieces, total))

    def holding(self):
        return self.model.no_sync()

    def gathered(self, rows):
        packed = b"".join(struct.pack("<3d", *row) for row in rows)
        return [row for message in self.world.all_gather_bytes(packed) for row in struct.iter_unpack("<3d", message)]

    def any(self, flag):
        return Tensor.made(self.world.all_reduce(device.copy(flag.data), "max", label="losses that are not finite"))

    def agreed(self, stop):
        source = random.generator()
        mine = source.seed, source.step
        found = [WISH.unpack(message) for message in self.world.all_gather_bytes(WISH.pack(stop, *mine))]
        for rank, (_, *theirs) in enumerate(found):
            if theirs != list(found[0][1:]):
                raise StateError(
                    f"fit: random numbers are at seed and step {theirs} on rank {rank} and at {list(found[0][1:])} on "
                    "rank 0; all ranks must draw alike outside of shards (see manual_seed)"
                )
        return any(wish for wish, *_ in found)

    def rounds(self, batches):
        rank, size, own, number = self.world.rank, self.world.size, [], -1
        for number, batch in enumerate(batches):
            if isinstance(batch, Shards):
                raise ShapeError("evaluate: loader has a sampler, but the ranks share whole batches; make it without")
            own += [batch] * (number % size == rank)
            if number % size == size - 1:
                yield own
                own = []
        if number % size != size - 1:
            yield own
