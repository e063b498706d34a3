"""Convolution: the bilinear trio, and the forms in which users call it."""

from . import forms
from .forms import *

__all__: list[str] = []
__all__ += forms.__all__
