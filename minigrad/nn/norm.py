"""Normalisation layers.

eps         is added to the variance
affine      then scale by weight, from 1 on, and, if bias, shift by bias, from 0 on; both learned
momentum    the weight of the newest batch in the running statistics; None: all count alike
track_running_stats     keep running_mean, running_var and num_batches_tracked, which serve once training is over;
                        else the input itself always decides. InstanceNorm keeps none
"""

import numpy as np

from minigrad_kernels.errors import ShapeError

from .. import device as devices
from .. import ops
from ..core.check import flag_of, integer_of, number_of
from ..core.modes import repeating
from ..core.tape import write
from ..core.tensor import Tensor, tensor_of
from . import init
from .module import Module
from .parameter import parameter

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "LayerNorm"]


class _Affine(Module):
    """Keeps eps, weight and bias."""

    def _make_affine(self, shape, eps, affine, bias, device, dtype):
        layer = type(self).__name__
        self.eps = number_of(layer, "eps", eps, 0)
        affine, bias = flag_of(layer, "affine", affine), flag_of(layer, "bias", bias)
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, parameter(layer, shape, device, dtype) if wanted else None)

    def reset_parameters(self, generator=None):
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _Channels(_Affine):
    """BatchNorm and InstanceNorm: weight and bias of each channel."""

    def _check(self, input):
        if tensor_of(type(self).__name__, "input", input).ndim not in self.ranks:
            wanted = self.shape.replace("C", str(self.num_features))
            raise ShapeError(f"{type(self).__name__}: input has shape {input.shape}, wanted {wanted}")

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


# ---- over the batch, or with running statistics ----------------------------------------------------------------------


class _BatchNorm(_Channels):
    """Each channel to mean 0 and variance 1, over the batch in training and by running statistics otherwise."""

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        layer = type(self).__name__
        self.num_features = integer_of(layer, "num_features", num_features, 1)
        self.momentum = None if momentum is None else number_of(layer, "momentum", momentum, 0, 1)
        self.affine, self.track_running_stats = affine, flag_of(layer, "track_running_stats", track_running_stats)
        self._make_affine((self.num_features,), eps, affine, bias, device, dtype)
        for name in ("running_mean", "running_var"):
            vector = parameter(layer, (self.num_features,), device, dtype).detach() if track_running_stats else None
            self.register_buffer(name, vector)
        count = Tensor(devices.move(np.zeros((), np.int64), device or "cpu")) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self):
        """Forget the batches seen so far."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self, generator=None):
        """Weight 1, bias 0, no batches seen."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check(self, input):
        super()._check(input)
        if input.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: input has {input.shape[1]} channels (shape {input.shape}), "
                f"wanted {self.num_features}"
            )

    def forward(self, input):
        self._check(input)
        tracking = self.training and self.track_running_stats
        counting = tracking and self.num_batches_tracked is not None and not repeating.get()
        momentum = self.momentum
        if momentum is None:
            momentum = 1 / (self.num_batches_tracked.item() + 1) if counting else 0.0
        batch_decides = self.training or self.running_mean is None
        statistics = (self.running_mean, self.running_var) if tracking or not self.training else (None, None)
        out = ops.batch_norm(input, *statistics, self.weight, self.bias, batch_decides, momentum, self.eps)
        if counting:
            devices.accumulate(write(self.num_batches_tracked), 1)
        return out


class BatchNorm1d(_BatchNorm):
    """Each channel to mean 0 and variance 1, over the batch in training and by running statistics otherwise.

    Shapes  (N, num_features) or (N, num_features, L), out alike
    """

    ranks, shape = (2, 3), "(N, C) or (N, C, L)"


class BatchNorm2d(_BatchNorm):
    """Each channel to mean 0 and variance 1, over the batch in training and by running statistics otherwise.

    Shapes  (N, num_features, H, W), out alike
    """

    ranks, shape = (4,), "(N, C, H, W)"


# ---- over parts of each element of the batch -------------------------------------------------------------------------


class _InstanceNorm(_Channels):
    """Each channel of each element of the batch to mean 0 and variance 1."""

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=False,
        track_running_stats=False,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        layer = type(self).__name__
        self.num_features = integer_of(layer, "num_features", num_features, 1)
        self.momentum = None if momentum is None else number_of(layer, "momentum", momentum, 0, 1)
        self.affine, self.track_running_stats = affine, flag_of(layer, "track_running_stats", track_running_stats)
        if track_running_stats:
            raise ShapeError(f"{layer}: track_running_stats is True, wanted False: there are no running statistics")
        self._make_affine((self.num_features,), eps, affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input):
        self._check(input)
        alone = input.ndim < max(self.ranks)
        batch = ops.unsqueeze(input, 0) if alone else input
        out = ops.instance_norm(batch, weight=self.weight, bias=self.bias, eps=self.eps)
        return ops.squeeze(out, 0) if alone else out


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each element of the batch to mean 0 and variance 1.

    Shapes  (N, num_features, L) or (num_features, L), out alike
    """

    ranks, shape = (2, 3), "(N, C, L) or (C, L)"


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each element of the batch to mean 0 and variance 1.

    Shapes  (N, num_features, H, W) or (num_features, H, W), out alike
    """

    ranks, shape = (3, 4), "(N, C, H, W) or (C, H, W)"


class LayerNorm(_Affine):
    """The elements of the last dimensions to mean 0 and variance 1.

    normalized_shape        their sizes, which are also the shape of weight and bias; a number for one
    elementwise_affine      then scale by weight and, if bias, shift by bias
    Shapes  (..., *normalized_shape), out alike
    """

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        sizes = normalized_shape if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
        self.normalized_shape = tuple(integer_of("LayerNorm", "normalized_shape", size, 0) for size in sizes)
        self.elementwise_affine = flag_of("LayerNorm", "elementwise_affine", elementwise_affine)
        self._make_affine(self.normalized_shape, eps, elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input):
        return ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class GroupNorm(_Affine):
    """The channels of each element of the batch, in num_groups groups, to mean 0 and variance 1.

    affine  then scale by weight and, if bias, shift by bias, both (num_channels,)
    Shapes  (N, num_channels, ...), out alike
    """

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        self.num_groups = integer_of("GroupNorm", "num_groups", num_groups, 1)
        self.num_channels = integer_of("GroupNorm", "num_channels", num_channels, 1)
        if self.num_channels % self.num_groups:
            raise ShapeError(f"GroupNorm: num_channels is {num_channels}, wanted a multiple of num_groups={num_groups}")
        self.affine = flag_of("GroupNorm", "affine", affine)
        self._make_affine((self.num_channels,), eps, affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input):
        return ops.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
