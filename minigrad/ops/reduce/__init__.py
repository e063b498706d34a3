"""Reductions: sums, extremes, norms, and running sums and products."""

from . import extremes, scans, sums
from .extremes import *
from .scans import *
from .sums import *

__all__: list[str] = []
__all__ += extremes.__all__
__all__ += scans.__all__
__all__ += sums.__all__
