"""Elementwise ops: arithmetic, functions of one argument, choices and comparisons."""

from . import arithmetic, choices, functions
from .arithmetic import *
from .choices import *
from .functions import *

__all__: list[str] = []
__all__ += arithmetic.__all__
__all__ += choices.__all__
__all__ += functions.__all__
