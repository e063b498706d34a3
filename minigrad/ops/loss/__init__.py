"""Losses: of classes, of numbers, of distributions."""

from . import classes, distributions, regression
from .classes import *
from .distributions import *
from .regression import *

__all__: list[str] = []
__all__ += classes.__all__
__all__ += distributions.__all__
__all__ += regression.__all__
