"""Normalisation by statistics of the batch, of groups of channels, of layers."""

from . import batch, groups
from .batch import *
from .groups import *

__all__: list[str] = []
__all__ += batch.__all__
__all__ += groups.__all__
