"""The ranks that train one model together, as `fit` and `evaluate` see them."""

from minigrad_kernels.errors import ShapeError

from .. import device
from ..core.tensor import Tensor
from ..data.loader import Shards
from ..train.team import Alone


class Together(Alone):
    """The ranks of a DataParallel model."""

    def __init__(self, model):
        self.model, self.world, self.shards = model, model.world, model.sampler.shards
        self.several = self.world.size > 1

    def agree(self, entries):
        self.world.agree("fit", entries)

    def images(self, batches):
        if not all(isinstance(batch, Shards) for batch in batches):
            raise ShapeError("fit: loader gives a DataParallel model whole batches; make it with sampler=model.sampler")
        return [batch.total for batch in batches]

    def parts(self, batches):
        total = sum(self.images(batches))
        shards = zip(*(batch.parts for batch in batches), strict=True)
        pieces = [[part for part in shard if part is not None] or None for shard in shards]
        return self.model.shards(Shards(pieces, total))

    def holding(self):
        return self.model.no_sync()

    def gathered(self, rows):
        return [row for found in self.world.all_gather_object(rows) for row in found]

    def any(self, flag):
        return Tensor.made(self.world.all_reduce(device.copy(flag.array), "max", label="losses that are not finite"))

    def agreed(self, stop):
        return any(self.world.all_gather_object(stop))

    def own(self, batches):
        for number, batch in enumerate(batches):
            if isinstance(batch, Shards):
                raise ShapeError("evaluate: loader has a sampler, but the ranks share whole batches; make it without")
            if number % self.world.size == self.world.rank:
                yield batch
