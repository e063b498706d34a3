"""Elementwise ops: arithmetic, functions of one argument, activations, choices and comparisons."""

from . import activations, arithmetic, choices
from .activations import *
from .arithmetic import *
from .choices import *

__all__ = [*activations.__all__, *arithmetic.__all__, *choices.__all__]
