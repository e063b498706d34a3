"""CUDA kernels in Python: declared (kernel), named (keys), compiled (compiler), kept (cache), started (launch)."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # that numba-cuda raises when imported with NumPy 2.5
    from .intrinsics import *  # noqa: F403
    from .intrinsics import __all__ as _words
    from .kernel import ARCHITECTURES, KERNELS, SPECIFIC, Kernel, each_float, kernel

__all__ = [*_words, "ARCHITECTURES", "KERNELS", "SPECIFIC", "Kernel", "each_float", "kernel"]
