"""Normalisation by statistics of the batch, of groups of channels, of layers."""

from . import batch, samples
from .batch import *
from .samples import *

__all__: list[str] = []
__all__ += batch.__all__
__all__ += samples.__all__
