"""CUDA kernels written in Python: declared (kernel), compiled (compiler, passes), kept (cache), started (launch)."""

from .intrinsics import *  # noqa: F403
from .intrinsics import __all__ as _words
from .kernel import ARCHITECTURES, KERNELS, Kernel, kernel

__all__ = [*_words, "ARCHITECTURES", "KERNELS", "Kernel", "kernel"]
