"""Batch normalisation."""

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from .. import device as devices
from .. import ops
from ..engine import write
from ..tensor import Tensor
from . import init
from .module import Module
from .options import at_least, fraction, parameter

__all__ = ["BatchNorm2d"]


class BatchNorm2d(Module):
    """Each channel to mean 0 and variance 1, over the batch in training and by running statistics otherwise.

    momentum                the weight of the newest batch in the running statistics; None: all count alike
    affine                  then scale by weight and, if bias, shift by bias, both (num_features,)
    track_running_stats     keep running_mean, running_var and num_batches_tracked; else the batch decides
    Shapes  (N, num_features, H, W), out alike
    """

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device="cpu",
        dtype=None,
        *,
        bias=True,
    ):
        self.num_features = at_least("BatchNorm2d", "num_features", num_features, 1)
        if isinstance(eps, bool) or not isinstance(eps, int | float):
            raise KindError(f"BatchNorm2d: eps is {eps!r}, wanted a number")
        if not eps >= 0:
            raise ShapeError(f"BatchNorm2d: eps is {eps}, wanted at least 0")
        self.momentum = None if momentum is None else fraction("BatchNorm2d", "momentum", momentum)
        self.eps, self.affine, self.track_running_stats = eps, bool(affine), bool(track_running_stats)
        vector = lambda: parameter("BatchNorm2d", (self.num_features,), device, dtype)
        self.register_parameter("weight", vector() if affine else None)
        self.register_parameter("bias", vector() if affine and bias else None)
        for name in ("running_mean", "running_var"):
            self.register_buffer(name, vector().detach() if track_running_stats else None)
        count = Tensor(devices.move(np.zeros((), np.int64), device)) if track_running_stats else None
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
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        if input.ndim != 4 or input.shape[1] != self.num_features:
            raise ShapeError(f"BatchNorm2d: input has shape {input.shape}, wanted (N, {self.num_features}, H, W)")
        counting = self.training and self.track_running_stats
        count = self.num_batches_tracked.item() + 1 if counting else 0
        momentum = self.momentum
        if momentum is None:
            momentum = 1 / count if count else 0.0
        batch_decides = self.training or self.running_mean is None
        out = ops.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            batch_decides,
            momentum,
            self.eps,
        )
        if counting:
            write(self.num_batches_tracked).fill(count)
        return out

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )
