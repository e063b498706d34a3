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
from ..core.create import zeros
from ..core.modes import repeating
from ..core.tape import write
from ..core.tensor import tensor_of
from . import functional as F
from . import init
from .layer import Layer, Positive, Sizes
from .parameter import parameter

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "LayerNorm"]


Eps = Annotated[float, partial(number_of, least=0)]
Momentum = Annotated[float | None, lambda layer, name, m: m if m is None else number_of(layer, name, m, 0, 1)]


class _Norm(Layer, unnamed=1):
    """Keeps weight and bias."""

    def _make_parameters(self, shape, affine, bias, device, dtype):
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, parameter(type(self).__name__, shape, device, dtype) if wanted else None)
        self.reset_parameters()

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
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def __post_init__(self, bias, device, dtype):
        super().__post_init__()
        self._make_statistics(device, dtype)
        self._make_parameters((self.num_features,), self.affine, bias, device, dtype)

    def _check(self, input):
        layer = type(self).__name__
        if tensor_of(layer, "input", input).ndim not in self.ranks:
            wanted = self.shape.replace("C", str(self.num_features))
            raise ShapeError(f"{layer}: input has shape {input.shape}, wanted {wanted}")


# ---- over the batch, or with running statistics ----------------------------------------------------------------------


class _BatchNorm(_Channels):
    """Each channel to mean 0 and variance 1, over the batch in training and by running statistics otherwise."""

    def _make_statistics(self, device, dtype):
        layer, kept = type(self).__name__, self.track_running_stats
        for name in ("running_mean", "running_var"):
            tensor = parameter(layer, (self.num_features,), device, dtype).detach() if kept else None
            self.register_buffer(name, tensor)
        self.register_buffer("num_batches_tracked", zeros(dtype="int64", device=device or "cpu") if kept else None)

    def reset_running_stats(self):
        """Forget the batches seen so far."""
        if self.track_running_stats:
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

    def _make_statistics(self, device, dtype):
        if self.track_running_stats:
            raise ShapeError(f"{type(self).__name__}: track_running_stats is True, wanted False: none are kept")

    def forward(self, input):
        self._check(input)
        if input.ndim < max(self.ranks):
            return F.squeeze(self.forward(F.unsqueeze(input, 0)), 0)
        return F.instance_norm(input, weight=self.weight, bias=self.bias, eps=self.eps)


class InstanceNorm1d(_InstanceNorm, ranks=(2, 3), shape="(N, C, L) or (C, L)"):
    """Each channel of each element of the batch to mean 0 and variance 1.

    Shapes  (N, num_features, L) or (num_features, L), out alike
    """


class InstanceNorm2d(_InstanceNorm, ranks=(3, 4), shape="(N, C, H, W) or (C, H, W)"):
    """Each channel of each element of the batch to mean 0 and variance 1.

    Shapes  (N, num_features, H, W) or (num_features, H, W), out alike
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
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def __post_init__(self, bias, device, dtype):
        super().__post_init__()
        self._make_parameters(self.normalized_shape, self.elementwise_affine, bias, device, dtype)


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
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def __post_init__(self, bias, device, dtype):
        super().__post_init__()
        self._make_parameters((self.num_channels,), self.affine, bias, device, dtype)
