"""Layers, losses and initialisers under PyTorch's names."""

from . import activation, attention, container, conv, functional, init, lazy, loss, norm, pool, recurrent, shape, utils
from .activation import *
from .attention import *
from .container import *
from .conv import *
from .lazy import *
from .linear import Embedding, Linear
from .loss import *
from .module import Module
from .norm import *
from .parameter import Parameter
from .pool import *
from .recurrent import *
from .shape import *
from .summary import summary

__all__ = ["Embedding", "Linear", "Module", "Parameter", "functional", "init", "summary", "utils"]
__all__ += activation.__all__
__all__ += attention.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += lazy.__all__
__all__ += loss.__all__
__all__ += norm.__all__
__all__ += pool.__all__
__all__ += recurrent.__all__
__all__ += shape.__all__
