"""CUDA kernels in Python: declared (kernel), named (keys), compiled (compiler), kept (cache), started (launch)."""

from .intrinsics import *  # noqa: F403
from .intrinsics import __all__ as _words
from .kernel import ARCHITECTURES, KERNELS, SPECIFIC, Kernel, each_float, kernel

__all__ = [*_words, "ARCHITECTURES", "KERNELS", "SPECIFIC", "Kernel", "each_float", "kernel"]
