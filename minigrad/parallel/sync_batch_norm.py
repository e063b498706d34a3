"""SyncBatchNorm: batch normalisation over the batch of all ranks together.

Math    with n_r, m_r, v_r the elements a channel, the mean and the variance of rank r, and N = sum n_r:
            m = sum n_r m_r / N                             v = sum n_r (v_r + (m_r - m)^2) / N
        in which a large mean does not cancel, as it would in sum x^2 / N - m^2
Grads   those of batch_norm, where a mean over the batch is one over all ranks; weight and bias get the sums of this
        rank alone, for DataParallel to add. So all ranks together hold the gradient of the sum of their losses
Source  Ioffe and Szegedy 2015, algorithm 1; Chan, Golub and LeVeque 1983, "Algorithms for computing the sample
        variance" (merged statistics); Peng and others 2018, "MegDet", section 3.3 (over devices)
"""

import math

from minigrad_kernels import norm as kernels
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain.capture import capturing

from .. import device as devices
from .. import ops
from ..engine import no_grad, write
from ..modes import repeating
from ..nn import BatchNorm1d, BatchNorm2d, Module
from ..nn.norm import _BatchNorm
from ..ops.normalization import batch as local
from ..primitive import primitive
from ..tensor import Tensor
from .transfer import all_reduce, world_of

__all__ = ["SyncBatchNorm"]


# ---- statistics ------------------------------------------------------------------------------------------------------


@primitive(outputs=("mean", "variance"), fixed=("input", "mean", "variance"))
def _statistics(input):
    """The mean and the biased variance of each channel on this rank, zeros where it has no elements."""
    x = local._dense(input)
    mean, variance = (devices.zeros((x.shape[1],), devices.sum_dtype(x), like=x) for _ in range(2))
    if x.size:
        kernels.batch_statistics(x, mean, variance, devices.workspace)
    return mean, variance


def _merged(input, world):
    """(mean, variance, elements a channel) of all ranks, in float64, with equal bits everywhere.

    All three stay on the device: a host that read the count would wait for the GPU, and no graph could do that.
    """
    channels = input.shape[1]
    message = devices.empty((2 * channels + 1,), "float64", like=input.data)
    devices.fill(message[-1:], input.data.size // channels)
    for part, one in zip((message[:channels], message[channels:-1]), _statistics(input), strict=True):
        devices.assign(part, one.data)
    gathered = devices.empty((world.size, message.size), "float64", like=message)
    world.all_gather(gathered, message, label=f"SyncBatchNorm {input.dtype}")
    table = Tensor.made(gathered)
    counts, means, variances = table[:, -1:], table[:, :channels], table[:, channels:-1]
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    return mean, (counts * (variances + (means - mean) ** 2)).sum(0) / count, count


# ---- the primitive ---------------------------------------------------------------------------------------------------


@primitive(fixed=("mean", "variance", "count"))
def _sync_batch_norm(input, weight, bias, mean, variance, count, eps, world):
    """Normalised by the statistics of all ranks, which have `count` elements a channel."""
    x = local._dense(input)
    out = devices.empty_like(x)
    if x.size:
        kernels.batch_normalize(x, mean, variance, *local._contiguous((weight, bias), x), eps, None, False, out)
    return out


def _over_all(x, axes, count, world):
    """The mean over axes and ranks."""
    return all_reduce(ops.sum(x, axes, True), world) / count


def _standardised(input, count, eps, world):
    """(x - mean) / sqrt(variance + eps) and 1 / sqrt(variance + eps), as differentiable functions of all x."""
    axes = tuple(axis for axis in range(input.ndim) if axis != 1)
    deviation = input - _over_all(input, axes, count, world)
    scale = 1 / ops.sqrt(_over_all(deviation * deviation, axes, count, world) + eps)
    return deviation * scale, scale, axes


def _dx_of_sync_batch_norm(g, input, weight, count, eps, world):
    standard, scale, axes = _standardised(input, count, eps, world)
    g = g if weight is None else g * local.per_channel(weight, input.ndim)
    shared = _over_all(g, axes, count, world) + standard * _over_all(g * standard, axes, count, world)
    return scale * (g - shared)


def _dweight_of_sync_batch_norm(g, input, count, eps, world):
    standard, _, axes = _standardised(input, count, eps, world)
    return ops.sum(g * standard, axes)


_sync_batch_norm.grads(
    input=_dx_of_sync_batch_norm,
    weight=_dweight_of_sync_batch_norm,
    bias=lambda g: ops.sum(g, tuple(axis for axis in range(g.ndim) if axis != 1)),
)


@_sync_batch_norm.fast_grads
def _sync_batch_norm_at_once(g, input, mean, variance, weight, count, eps, world, needs):
    """Both sums of this rank by one kernel, their totals by one exchange, and from these the gradient of the input."""
    g, x = local._dense(g), local._dense(input)
    dx = devices.empty_like(x)
    dweight, dbias = (devices.zeros((x.shape[1],), devices.sum_dtype(x), like=x) for _ in range(2))
    if x.size:
        kernels.batch_norm_grads(g, x, mean, variance, None, eps, None, None, dweight, dbias, None, devices.workspace)
    if "input" in needs:
        totals = devices.empty((2, x.shape[1]), "float64", like=x)
        for total, own in zip(totals, (dbias, dweight), strict=True):
            devices.assign(total, own)
        world.all_reduce(totals, order="fixed", label="SyncBatchNorm")
        if x.size:
            _write_dx(dx, g, x, mean, variance, weight, Tensor.made(totals) / Tensor.made(count), eps)
    return {"input": dx, "weight": dweight, "bias": dbias}


def _write_dx(dx, g, x, mean, variance, weight, means, eps):
    """scale (g - means[0] - z means[1]), z being x standardised: the last two terms are a batch_normalize."""
    with no_grad():
        scale = 1 / ops.sqrt(Tensor.made(variance).to("float64") + eps)
        scale = (scale if weight is None else scale * Tensor.made(weight)).detach()
        bias, slope = ((scale * -one).to(devices.sum_dtype(x)).data for one in (means[0], means[1]))
        kernels.batch_normalize(x, mean, variance, slope, bias, eps, None, False, dx)
        per_channel = local.per_channel(scale.to(x.dtype), x.ndim)
        devices.accumulate(dx, devices.elementwise("mul", g, per_channel.data))


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
    Errors  ValueError on every rank for a single element a channel in the whole batch, which has no variance; a graph
            (minigrad.graph.capture) cannot see that, and its running variance becomes NaN
    """

    ranks, shape = range(2, 6), "(N, C, ...)"

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        world=None,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.world = None if world is None else world_of("SyncBatchNorm", world)

    @classmethod
    def convert(cls, module, world=None):
        """Replace every BatchNorm1d and BatchNorm2d in a Module by a SyncBatchNorm with the same Tensors.

        Parameters and buffers stay the same objects, under the same names, so optimisers and checkpoints still fit.
        Returns the Module, or what replaces it if it is itself a batch normalisation.
        """
        if not isinstance(module, Module):
            raise KindError(f"SyncBatchNorm.convert: module is a {type(module).__name__}, wanted a Module")
        world = None if world is None else world_of("SyncBatchNorm.convert", world)
        return cls._converted(module, world, {})

    @classmethod
    def _converted(cls, module, world, known):
        """What stands for a module from now on; `known` remembers it for modules that stand in several places."""
        if module not in known:
            known[module] = module
            if isinstance(module, BatchNorm1d | BatchNorm2d):
                known[module] = twin = cls.__new__(cls)
                copied = {
                    name: value.copy() if isinstance(value, dict | set) else value
                    for name, value in vars(module).items()
                }
                twin.__dict__.update(copied, world=world)
            for name, part in module._modules.items():
                if part is not None:
                    module._modules[name] = cls._converted(part, world, known)
        return known[module]

    def forward(self, input):
        self._check(input)
        if not self.training or (world := world_of("SyncBatchNorm", self.world)).size == 1:
            return super().forward(input)
        return self._synchronised(input, world)

    def _synchronised(self, input, world):
        vectors = {name: getattr(self, name) for name in ("running_mean", "running_var", "weight", "bias")}
        if input.shape[1] != self.num_features or self.eps <= 0:
            raise ShapeError(
                f"SyncBatchNorm: input has {input.shape[1]} channels (shape {input.shape}), eps is {self.eps}; wanted "
                f"{self.num_features} channels and an eps above 0"
            )
        local.check_channels("SyncBatchNorm", input, **vectors)
        if self.track_running_stats:
            local.check_running("SyncBatchNorm", self.running_mean, self.running_var, True)
        flat = (*input.shape[:2], math.prod(input.shape[2:]), 1)
        images = input if input.ndim in (2, 4) else ops.reshape(input, flat)
        mean, variance, count = _merged(images, world)
        total = self._total(images, count)
        if total == 1:
            raise ShapeError(
                f"SyncBatchNorm: the whole batch has one element a channel (shape {input.shape} here), which has no "
                f"variance; use larger batches, or eval()"
            )
        if not total:
            affine = [v if v is None else local.per_channel(v, input.ndim) for v in (self.weight, self.bias)]
            return local.scaled(input, *affine)
        if self.track_running_stats and not repeating.get():
            self._track(mean, variance * (count / (count - 1)))
        mean, variance = (one.to(devices.sum_dtype(input.data)) for one in (mean, variance))
        out = _sync_batch_norm(images, self.weight, self.bias, mean, variance, count, self.eps, world)
        return out if images is input else ops.reshape(out, input.shape)

    def _total(self, images, count):
        """The elements a channel of all ranks; those of this one where they are enough. A graph does not look."""
        own = images.shape[0] * math.prod(images.shape[2:])
        return own if own > 1 else 2 if capturing.get() is not None else int(count.item())

    def _track(self, mean, variance):
        """Let the running statistics take part of those of a batch."""
        counted = self.num_batches_tracked
        momentum = self.momentum
        if momentum is None:
            momentum = 0.0 if counted is None else 1 / (counted.item() + 1)
        local.update_running(self.running_mean, mean, momentum)
        local.update_running(self.running_var, variance, momentum)
        if counted is not None:
            devices.accumulate(write(counted), 1)
