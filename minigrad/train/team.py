"""Who trains: this process alone, or with the other ranks of a DataParallel model."""

import contextlib
import struct

from minigrad_kernels.errors import ShapeError, StateError

from .. import device
from ..device import random
from ..parallel import DataParallel, Shards
from ..tensor import Tensor

__all__ = ["module_of", "team_of"]

WISH = struct.Struct("<?QQ")  # whether to stop; seed and step of the random numbers


class Alone:
    """One process; each of its batches is a shard of its own."""

    shards, several = 1, False  # several: ranks, which compare what they find

    def agree(self, entries):
        """Have all ranks confirm that they train in the same way: the same texts under the same names."""

    def images(self, batches):
        """How many there are in each batch of an update."""
        if any(isinstance(batch, Shards) for batch in batches):
            raise ShapeError("fit: loader has a sampler, which wants a DataParallel model; make it without")
        return [len(labels) for _, labels in batches]

    def parts(self, batches):
        """Lists of pairs (images, labels), one for each shard of this rank, whose gradients add up."""
        return [batches]

    def holding(self):
        """A context for backward where another follows for the same shard."""
        return contextlib.nullcontext()

    def gathered(self, rows):
        """The rows, tuples of numbers, of all ranks in their order."""
        return rows

    def agreed(self, stop):
        """Whether any rank wants to stop."""
        return stop

    def any(self, flag):
        """A flag, a Tensor (1,), as the highest of all ranks."""
        return flag

    def rounds(self, batches):
        """Lists of the batches that this rank evaluates between two questions whether to stop: none, or one."""
        return ([batch] for batch in batches)


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


def team_of(model):
    """The team of a model."""
    return Together(model) if isinstance(model, DataParallel) else Alone()


def module_of(model):
    """The network itself."""
    return model.module if isinstance(model, DataParallel) else model
