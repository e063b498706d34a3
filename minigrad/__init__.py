"""minigrad: a small reverse-mode autodiff engine whose kernels are Python.

Tensor, primitives and backward are in `core`, operations in `ops` (also here and in `nn.functional`), layers in `nn`,
update rules in `optim`, data sets in `data`, training loops in `train`; `profile` tells where time and memory go.
"""

from math import inf, nan, pi
from typing import TYPE_CHECKING

from minigrad_kernels.toolchain.modes import tf32, winograd

from . import backends, cuda, nn, ops, optim, profile
from .anomaly import detect_anomaly
from .backends import accelerator
from .checkpoint import load_weights
from .core import create
from .core.create import *
from .core.errors import MinigradError
from .core.modes import deterministic, enable_grad, is_deterministic, is_grad_enabled, no_grad, set_grad_enabled
from .core.primitive import primitive
from .core.tape import grad
from .core.tensor import Tensor
from .device import default_generator, empty_cache, manual_seed, memory_statistics
from .device.arrays import bfloat16, bool, float16, float32, float64, int8, int16, int32, int64, long, uint8
from .export import export_onnx
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .ops import *
from .ops.autocast import autocast
from .ops.elementwise.arithmetic import allclose
from .ops.reduce import std_mean, var_mean
from .recomputing import recompute
from .serialization import load, save

__version__ = "0.1.0"

inference_mode = no_grad
channels_last, contiguous_format = "channels_last", "contiguous_format"  # what `to` accepts without effect
int, short, float, double, half = int32, int16, float32, float64, float16  # PyTorch's names; not for `import *`


def compile(model=None, **options):
    """The model, or the function, itself: PyTorch's way to be faster, accepted without effect."""
    return model if model is not None else lambda model: model


__all__ = [
    "GradcheckError",
    "MinigradError",
    "Tensor",
    "autocast",
    "accelerator",
    "allclose",
    "bfloat16",
    "backends",
    "bool",
    "cuda",
    "default_generator",
    "detect_anomaly",
    "deterministic",
    "empty_cache",
    "enable_grad",
    "export_onnx",
    "float16",
    "float32",
    "float64",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inf",
    "inference_mode",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_deterministic",
    "is_grad_enabled",
    "load",
    "load_weights",
    "long",
    "manual_seed",
    "memory_statistics",
    "nan",
    "nn",
    "no_grad",
    "optim",
    "pi",
    "primitive",
    "profile",
    "recompute",
    "save",
    "set_grad_enabled",
    "std_mean",
    "tf32",
    "uint8",
    "var_mean",
    "winograd",
]
__all__ += create.__all__
__all__ += ops.__all__

if not TYPE_CHECKING:  # which would then believe in every name

    def __getattr__(name):
        """Parts that an import leaves out, so that it stays fast: loaded when they are first named."""
        from importlib import import_module
        from sys import modules

        lazy = "amp autograd checkpoint data draw graph models parallel report train utils"
        if name in lazy.split():
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=modules[__name__])
