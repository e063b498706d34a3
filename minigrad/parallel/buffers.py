"""Buffers of a model on several ranks: those of shard 0 count, as in PyTorch's DistributedDataParallel.

Every shard of an update starts from the same buffers. What shard 0 makes of them is what all ranks have afterwards.
"""

from .. import device
from ..engine import write
from .flat import Bucket

__all__ = ["Buffers"]


class Buffers:
    """Keeps the buffers of a module in step on all ranks."""

    def __init__(self, module, world):
        self.tensors, self.world = list(module.buffers()), world
        kinds: dict[tuple, list] = {}
        for tensor in self.tensors:
            kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        self.buckets = [Bucket(tensors) for tensors in kinds.values()] if world.size > 1 else []
        self._before = self._of_first = None

    def _copies(self):
        return [device.copy(tensor.data, device.order_of(tensor.data)) for tensor in self.tensors]

    def _put(self, arrays):
        for tensor, array in zip(self.tensors, arrays, strict=True):
            device.assign(write(tensor), array)

    def begin(self):
        """Before the first of several shards of this rank."""
        self._before, self._of_first = self._copies(), None

    def end_shard(self, last):
        """After each of several shards: the next starts where the first one did; in the end the first one counts."""
        if self._of_first is None:
            self._of_first = self._copies()
        self._put(self._of_first if last else self._before)

    def restore(self):
        """After an exception in the midst of several shards: be as before the first."""
        if self._before is not None:
            self._put(self._before)

    def synchronize(self):
        """Take those of rank 0."""
        for bucket in self.buckets:
            bucket.gather([tensor.data for tensor in bucket.tensors])
            self.world.broadcast(bucket.array, label="buffers")
            for tensor in bucket.tensors:
                write(tensor)
            bucket.scatter()
