"""Who trains: this process alone, or with the other ranks of a model that they share."""

import contextlib

from minigrad_kernels.errors import ShapeError

from ..data.loader import Shards


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

    def own(self, batches):
        """Those of the batches that this rank evaluates."""
        return batches


def team_of(model):
    """The team of a model: its own where ranks share it, as DataParallel."""
    return model.team if hasattr(type(model), "team") else Alone()


def module_of(model):
    """The network itself."""
    return model.module if hasattr(type(model), "team") else model
