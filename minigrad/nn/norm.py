"""Normalisation layers.

eps         is added to the variance
affine      then scale by weight, from 1 on, and, if bias, shift by bias, from 0 on; both learned
momentum    the weight of the newest batch in the running statistics; None: all count alike
track_running_stats     keep running_mean, running_var and num_batches_tracked, which serve once training is over;
                        else the input itself always decides. InstanceNorm keeps none
"""

from dataclasses import InitVar, field
from functools import partial
from typing import Annotated

from minigrad_kernels.errors import ShapeError

from .. import device as devices
from ..core.check import number_of, shape_of
from ..core.create import ones, zeros
from ..core.modes import repeating
from ..core.tape import write
from ..core.tensor import tensor_of
from . import functional as F
from . import init
from .layer import Positive, Sizes, Weighted

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "LayerNorm"]

Eps = Annotated[float, partial(number_of, least=0)]
Momentum = Annotated[float | None, lambda layer, name, m: m if m is None else number_of(layer, name, m, 0, 1)]


class _Norm(Weighted, unnamed=1):
    """A layer whose weight and bias scale and shift what it has normalised."""

    def reset_parameters(self):
        """Weight 1, bias 0."""
        for fill, tensor in ((init.ones_, self.weight), (init.zeros_, self.bias)):
            if tensor is not None:
                fill(tensor)


class _Channels(_Norm):
    """BatchNorm and InstanceNorm: weight and bias of each channel."""

    num_features: Positive
    eps: Eps = 1e-5
    momentum: Momentum = 0.1
    affine: bool = True
    bias: InitVar[bool] = field(default=True, kw_only=True)
    track_running_stats: bool = True

    def shapes(self):
        return ((self.num_features,) if self.affine else None,) * 2

    def _check(self, input):
        layer = type(self).__name__
        if tensor_of(layer, "input", input).ndim not in self.ranks:
            wanted = self.shape.replace("C", str(self.num_features))
            raise ShapeError(f"{layer}: input has shape {input.shape}, wanted {wanted}")


# ---- over the batch, or with running statistics ----------------------------------------------------------------------


class _BatchNorm(_Channels):
    """Each channel to mean 0 and variance 1, over the batch in training and by running statistics otherwise."""

    def __post_init__(self, device, dtype, bias):
        super().__post_init__(device, dtype, bias)
        kept, there = self.track_running_stats, {"device": device or "cpu"}
        self.register_buffer("running_mean", zeros(self.num_features, dtype=dtype, **there) if kept else None)
        self.register_buffer("running_var", ones(self.num_features, dtype=dtype, **there) if kept else None)
        self.register_buffer("num_batches_tracked", zeros(dtype="int64", **there) if kept else None)

    def reset_running_stats(self):
        """Forget the batches seen so far."""
        if getattr(self, "running_mean", None) is not None:  # nor while weight and bias are made, before it
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self):
        """Weight 1, bias 0, no batches seen."""
        self.reset_running_stats()
        super().reset_parameters()

    def forward(self, input):
        self._check(input)
        counting = self.training and self.num_batches_tracked is not None and not repeating.get()
        momentum = self.momentum
        if momentum is None:
            momentum = 1 / (self.num_batches_tracked.item() + 1) if counting else 0.0
        statistics, by_batch = (self.running_mean, self.running_var), self.training or self.running_mean is None
        out = F.batch_norm(input, *statistics, self.weight, self.bias, by_batch, momentum, self.eps)
        if counting:
            devices.accumulate(write(self.num_batches_tracked), 1)
        return out


class BatchNorm1d(_BatchNorm, ranks=(2, 3), shape="(N, C) or (N, C, L)"):
    """Each channel to mean 0 and variance 1, over the batch in training and by running statistics otherwise.

    Shapes  (N, num_features) or (N, num_features, L), out alike
    """


class BatchNorm2d(_BatchNorm, ranks=(4,), shape="(N, C, H, W)"):
    """Each channel to mean 0 and variance 1, over the batch in training and by running statistics otherwise.

    Shapes  (N, num_features, H, W), out alike
    """


# ---- over parts of each element of the batch -------------------------------------------------------------------------


class _InstanceNorm(_Channels):
    """Each channel of each element of the batch to mean 0 and variance 1."""

    affine: bool = False
    track_running_stats: bool = False

    def __post_init__(self, device, dtype, bias):
        super().__post_init__(device, dtype, bias)
        if self.track_running_stats:
            raise ShapeError(f"{type(self).__name__}: track_running_stats is True, wanted False: none are kept")

    def forward(self, input):
        self._check(input)
        return F.instance_norm(input, weight=self.weight, bias=self.bias, eps=self.eps)


class InstanceNorm1d(_InstanceNorm, ranks=(3,), shape="(N, C, L)"):
    """Each channel of each element of the batch to mean 0 and variance 1.

    Shapes  (N, num_features, L), out alike
    """


class InstanceNorm2d(_InstanceNorm, ranks=(4,), shape="(N, C, H, W)"):
    """Each channel of each element of the batch to mean 0 and variance 1.

    Shapes  (N, num_features, H, W), out alike
    """


class LayerNorm(_Norm, op=F.layer_norm):
    """The elements of the last dimensions to mean 0 and variance 1.

    normalized_shape        their sizes, which are also the shape of weight and bias; a number for one
    elementwise_affine      then scale by weight and, if bias, shift by bias
    Shapes  (..., *normalized_shape), out alike
    """

    normalized_shape: Annotated[Sizes, lambda layer, name, value: shape_of(layer, name, (value,))]
    eps: Eps = 1e-5
    elementwise_affine: bool = True
    bias: InitVar[bool] = True

    def shapes(self):
        return (self.normalized_shape if self.elementwise_affine else None,) * 2


class GroupNorm(_Norm, op=F.group_norm, unnamed=2):
    """The channels of each element of the batch, in num_groups groups, to mean 0 and variance 1.

    affine  then scale by weight and, if bias, shift by bias, both (num_channels,)
    Shapes  (N, num_channels, ...), out alike
    """

    num_groups: Positive
    num_channels: Positive
    eps: Eps = 1e-5
    affine: bool = True
    bias: InitVar[bool] = field(default=True, kw_only=True)

    def shapes(self):
        return ((self.num_channels,) if self.affine else None,) * 2
