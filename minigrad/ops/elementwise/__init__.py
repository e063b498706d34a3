"""Elementwise ops: arithmetic, functions of one argument, activations, choices and comparisons."""

from . import activations, arithmetic, choices, functions, rectifiers
from .activations import *
from .arithmetic import *
from .choices import *
from .functions import *
from .rectifiers import *

__all__: list[str] = []
__all__ += activations.__all__
__all__ += arithmetic.__all__
__all__ += choices.__all__
__all__ += functions.__all__
__all__ += rectifiers.__all__
