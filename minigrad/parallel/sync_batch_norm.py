"""SyncBatchNorm: batch normalisation over the batch of all ranks together.

Math    m = (1/N) sum x         v = (1/N) sum (x - m)^2         out = weight (x - m) / sqrt(v + eps) + bias
        sums are over all ranks, for each channel, which has N elements; a large mean does not cancel, as it would in
        (1/N) sum x^2 - m^2
Grads   those of the ops that it is written in, of which all_reduce gives the sum over ranks of its gradients; weight
        and bias get the sums of this rank alone, for DataParallel to add. So all ranks together hold the gradient of
        the sum of their losses
Source  Ioffe and Szegedy 2015, algorithm 1; Peng and others 2018, "MegDet", section 3.3 (over devices)
"""

from .. import device as devices
from .. import ops
from ..core.create import full
from ..core.modes import repeating
from ..core.tape import write
from ..nn import BatchNorm1d, BatchNorm2d
from ..nn.norm import _BatchNorm
from ..ops import normalization
from .transfer import all_reduce, world_of


def _statistics(input, world):
    """(elements a channel, mean, x - mean, variance) over all ranks; the variance has the shape (1, C, 1, ...).

    All stays on the device: a host that read the count would wait for the GPU, and no graph could do that.
    """
    axes = (0, *range(2, input.ndim))
    own = full((1,), input.array.size // input.shape[1], dtype=input.dtype, device=input.device)
    totals = all_reduce(ops.cat([ops.sum(input, axes), own]), world, "SyncBatchNorm")
    count = ops.clamp(totals[-1].detach(), 1)  # where nobody has a row
    mean = totals[:-1] / count
    deviation = input - normalization.per_channel(mean, input.ndim)
    variance = all_reduce(ops.sum(deviation * deviation, axes, keepdim=True), world, "SyncBatchNorm") / count
    return count, mean, deviation, variance


# ---- the layer -------------------------------------------------------------------------------------------------------


class SyncBatchNorm(_BatchNorm):
    """BatchNorm1d or BatchNorm2d whose batch is that of all ranks, which may have unequal shares of it.

    world   a Communicator; default that of parallel.init()
    Other arguments are those of BatchNorm2d.

    In training all ranks must call the layer, and go backward through it, equally often and in the same order, also
    one whose share is empty, an input of shape (0, C, ...): it has no part in the result, but the others wait for it.
    The running statistics are those of the whole batch, with the same bits on all ranks. A rank that runs several
    shards one after another cannot use it. In eval(), and in a world of one rank, it is BatchNorm2d, bit for bit.
    Gradients of any order are those of the whole batch.

    Shapes  (N, num_features, ...), out alike; all but N the same on all ranks
    A single element a channel in the whole batch has the variance 0.
    """

    ranks, shape = range(2, 6), "(N, C, ...)"

    def __init__(self, num_features, *options, world=None, **named_options):
        super().__init__(num_features, *options, **named_options)
        self.world = None if world is None else world_of("SyncBatchNorm", world)

    @classmethod
    def convert(cls, module, world=None):
        """Make every BatchNorm1d and BatchNorm2d in a Module a SyncBatchNorm, and return the Module.

        Layers, parameters and buffers stay the same objects, under the same names, so optimisers, hooks and
        checkpoints still fit.
        """
        world = None if world is None else world_of("SyncBatchNorm.convert", world)
        for layer in module.modules():
            if isinstance(layer, BatchNorm1d | BatchNorm2d):
                layer.__class__, layer.world = cls, world
        return module

    def forward(self, input):
        self._check(input)
        if not self.training or (world := world_of("SyncBatchNorm", self.world)).size == 1:
            return super().forward(input)
        vectors = {name: getattr(self, name) for name in ("running_mean", "running_var", "weight", "bias")}
        normalization.check_channels("SyncBatchNorm", input, **vectors)
        x = input.to(devices.sum_dtype(input.array))
        count, mean, deviation, variance = _statistics(x, world)
        if self.track_running_stats and not repeating.get():
            self._track(mean.detach(), ops.flatten(variance).detach() * (count / ops.clamp(count - 1, 1)))
        standard = deviation / ops.sqrt(variance + self.eps)
        return normalization.scaled(standard, self.weight, self.bias).to(input.dtype)

    def _track(self, mean, variance):
        """Let the running statistics take part of those of a batch."""
        counted, momentum = self.num_batches_tracked, self.momentum
        if momentum is None:
            momentum = 1 / (counted.item() + 1)
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            update = running * (1 - momentum) + new * momentum
            devices.assign(write(running), update.array)
        devices.accumulate(write(counted), 1)
