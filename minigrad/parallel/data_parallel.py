"""DataParallel: the same model on every rank, each with its share of the batch.

Math    g = (1 / N) sum_i g_i over the N shards of a batch, added pairwise: first those of one rank, then over ranks

Source  Li and others 2020, "PyTorch Distributed: experiences on accelerating data parallel training"
"""

import contextlib

from minigrad_kernels.errors import KindError, ShapeError, StateError

from .. import device
from ..core.check import integer_of
from ..core.modes import is_grad_enabled
from ..core.tape import write
from ..device import random
from ..nn import Module
from .buckets import buckets_of
from .collectives import words
from .reducer import ADDING, ENDED, OUTSIDE, SENDING, Reducer
from .sampler import Shards, ShardSampler
from .sync_batch_norm import SyncBatchNorm
from .team import Together
from .transfer import world_of


class DataParallel(Module):
    """A model whose gradients are averaged over all shards of a batch.

    module          the model, on its device; all ranks start from the parameters and buffers of rank 0
    world           a Communicator; default that of parallel.init()
    shards          into how many parts a batch is cut, default one a rank. Equal shards give equal bits on any number
                    of ranks that ShardSampler allows
    bucket_bytes    of a bucket of gradients; by default chosen from the model

    model(...) computes on this rank. Where each rank has one shard, a plain loop will do, each rank with its own
    batch; a loop over model.shards(batch) does for any number. When the last backward of an update ends, every .grad
    is the average, the same bits on every rank, and zeros where no shard used the parameter. Buffers, such as running
    statistics, are those of shard 0, as in PyTorch. state_dict and load_state_dict are those of the module.

    Errors  DisagreementError where ranks differ in parameters, shapes, types or options, naming both
    """

    def __init__(self, module, world=None, *, shards=None, bucket_bytes=None):
        if not isinstance(module, Module) or isinstance(module, DataParallel):
            raise KindError(f"DataParallel: module is a {type(module).__name__}, wanted a Module and no DataParallel")
        self.module, self.world = module, world_of("DataParallel", world)
        if bucket_bytes is not None:
            integer_of("DataParallel", "bucket_bytes", bucket_bytes, 1)
        shards = self.world.size if shards is None else shards
        self.sampler = ShardSampler(shards, self.world.rank, self.world.size)
        self._synchronizes = any(isinstance(part, SyncBatchNorm) for part in module.modules())
        if self._synchronizes and (each := len(self.sampler)) > 1:
            raise StateError(f"DataParallel: SyncBatchNorm wants as many ranks as shards; this rank has {each} shards")
        self._agree({"bucket_bytes": bucket_bytes})
        self._shard = self.reducer = self.buffers_in_step = None  # one shard has nothing to add
        if self.sampler.shards > 1:
            self.buffers_in_step = _Buffers(module, self.world)
            self._frozen = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
            arriving = reversed([p for p in module.parameters() if p.requires_grad])
            self.reducer = Reducer(arriving, self.world, self.sampler.shards, bucket_bytes, self._end_update)
            self._leave_shards()

    def _agree(self, options):
        """Have all ranks confirm that they have the same model, and take the state of rank 0."""
        if self.world.size == 1:
            return
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        entries = {name: f"{words(tensor)} requires_grad={tensor.requires_grad}" for name, tensor in named}
        source = random.generator()
        entries |= {"the state of random numbers (see manual_seed)": f"seed {source.seed}, step {source.step}"}
        self.world.agree("DataParallel", {**entries, **options, "shards": self.sampler.shards})
        for name, tensor in named:
            self.world.broadcast(tensor, label=name)

    @property
    def team(self):
        """What `fit` asks of the ranks."""
        return Together(self)

    # ---- forward -------------------------------------------------------------------------------------------------

    def forward(self, *args, **kwargs):
        if self._shard is not None or self.reducer is None:
            return self.module(*args, **kwargs)
        self._check_use()
        if len(self.sampler) == 1 and is_grad_enabled():
            self.reducer.recover()
        if not self.training:
            return self.module(*args, **kwargs)
        if len(self.sampler) > 1:
            many = f"this rank has {len(self.sampler)} of {self.sampler.shards} shards"
            raise StateError(f"DataParallel: {many}; loop over them: for images, labels in model.shards(batch): ...")
        with self._drawing(self.sampler.numbers[0]):
            out = self.module(*args, **kwargs)
        random.generator().advance()
        return out

    def _check_use(self):
        thawed = next((name for name, parameter in self._frozen if parameter.requires_grad), None)
        if thawed is not None:
            raise StateError(f"DataParallel: {thawed} requires a gradient now and did not at first; wrap it anew")

    def _drawing(self, shard):
        """Random numbers of a shard of this step."""
        return random.drawing_from(random.generator().of_shard(shard))

    def shards(self, batch):
        """This rank's shards of a batch, one after another: `for images, labels in model.shards(batch): ...`.

        batch   Shards, as a Loader with this model's sampler gives them, or a tuple of Tensors that every rank has
                whole and that is cut here
        The body computes the loss of a shard and calls its backward. When the loop ends, every .grad is the average.
        A shard without images is left out and counts as zeros. What .grad held before is forgotten.
        """
        if random.generator().of_one_shard:
            raise StateError("shards: loops over shards do not nest; put several models into one Module and wrap that")
        if not isinstance(batch, tuple | list):
            raise KindError(f"shards: batch is a {type(batch).__name__}, wanted Shards or a tuple of Tensors")
        parts, total = batch if isinstance(batch, Shards) else self.sampler.cut(*batch)
        if self._synchronizes and total < self.sampler.shards:
            left = f"a batch of {total} leaves some of {self.sampler.shards} shards empty"
            raise StateError(f"shards: {left}, which SyncBatchNorm cannot have; use Loader(drop_last=True)")
        if len(parts) != len(self.sampler):
            raise ShapeError(f"shards: the batch has {len(parts)} shards, wanted this rank's {len(self.sampler)}")
        self.module.zero_grad()
        if self.reducer is None:
            yield from (part for part in parts if part is not None)
            return
        self._check_use()
        try:
            yield from self._shards(parts)
        except BaseException:
            self.buffers_in_step.restore()
            raise
        finally:
            self._leave_shards()
        random.generator().advance()

    def _shards(self, parts):
        several = len(parts) > 1
        self.reducer.begin(ADDING)
        if several:
            self.buffers_in_step.begin()
        for number, part in zip(self.sampler.numbers, parts, strict=True):
            self._shard, last = number, number == self.sampler.numbers[-1]
            self.reducer.phase = SENDING if last else ADDING
            if part is not None:
                with self._drawing(number):
                    yield part
            if not last:
                self.reducer.end_shard()
                self.buffers_in_step.end_shard(False)
            elif self.reducer.phase is not ENDED:
                self.reducer.finish()

    def _leave_shards(self):
        """Between updates: where a rank has several shards, a backward pass belongs to one of them or is a mistake."""
        self._shard = None
        self.reducer.begin(OUTSIDE if len(self.sampler) > 1 else SENDING)

    def _end_update(self):
        """The gradients are there: let the buffers follow."""
        if len(self.sampler) > 1:
            self.buffers_in_step.end_shard(True)
        self.buffers_in_step.synchronize()

    @contextlib.contextmanager
    def no_sync(self):
        """Inside, backward adds to .grad on this rank alone; the first one outside averages all of it."""
        if self.reducer is None:
            yield
            return
        held, self.reducer.held = self.reducer.held, True
        try:
            yield
        finally:
            self.reducer.held = held

    # ---- the face of the module ----------------------------------------------------------------------------------

    @property
    def timeline(self):
        """Of the latest update: {"bucket", "bytes", "ready", "done"} for each bucket, seconds after the first gradient.

        done is None where there was nothing to wait for.
        """
        return [] if self.reducer is None else self.reducer.timeline

    def state_dict(self, *args, **kwargs):
        """That of the module, under the same names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        """That of the module."""
        return self.module.load_state_dict(*args, **kwargs)

    def to(self, *targets, **options):
        raise StateError("DataParallel: its gradients lie in buckets; move the module before it is wrapped")


class _Buffers:
    """Keeps the buffers of a module in step on all ranks: those of shard 0 count, as in PyTorch.

    Every shard of an update starts from the same buffers. What shard 0 makes of them is what all ranks have afterwards.
    """

    def __init__(self, module, world):
        alike = sorted(module.buffers(), key=lambda tensor: (tensor.device, str(tensor.dtype)))
        self.buckets, self.world = buckets_of(alike), world
        self._before = self._of_first = None

    def _arrays(self):
        """The arrays of the buckets, in which all buffers lie from now on, to be read or written."""
        for bucket in self.buckets:
            bucket.gather([write(tensor) for tensor in bucket.tensors])
            bucket.scatter()
        return [bucket.array for bucket in self.buckets]

    def _put(self, arrays):
        for own, array in zip(self._arrays(), arrays, strict=True):
            device.assign(own, array)

    def begin(self):
        """Before the first of several shards of this rank."""
        self._before, self._of_first = list(map(device.copy, self._arrays())), None

    def end_shard(self, last):
        """After each of several shards: the next starts where the first one did; in the end the first one counts."""
        if self._of_first is None:
            self._of_first = list(map(device.copy, self._arrays()))
        self._put(self._of_first if last else self._before)

    def restore(self):
        """After an exception in the midst of several shards: be as before the first."""
        if self._before is not None:
            self._put(self._before)

    def synchronize(self):
        """Take those of rank 0."""
        for array in self._arrays() if self.world.size > 1 else ():
            self.world.broadcast(array, label="buffers")
