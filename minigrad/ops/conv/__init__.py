"""Convolution: the bilinear trio, and the forms in which users call it."""

from . import forms, trio
from .forms import *
from .trio import *

__all__: list[str] = []
__all__ += forms.__all__
__all__ += trio.__all__
