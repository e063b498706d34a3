"""Layers, losses and initialisers under PyTorch's names.

Public are the classes of each file whose names do not begin with an underscore, so that a new layer is named once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from . import functional, init, utils
from .summary import summary

if TYPE_CHECKING:  # type checkers follow star imports alone; these would also bring what the files import
    from .activation import *
    from .attention import *
    from .container import *
    from .conv import *
    from .lazy import *
    from .linear import *
    from .loss import *
    from .module import *
    from .norm import *
    from .parameter import *
    from .pool import *
    from .recurrent import *
    from .shape import *
else:
    __all__ = ["functional", "init", "summary", "utils"]
    _FILES = "activation attention container conv lazy linear loss module norm parameter pool recurrent shape"
    for _file in _FILES.split():
        for _name, _value in vars(import_module(f".{_file}", __name__)).items():
            if isinstance(_value, type) and _value.__module__ == f"{__name__}.{_file}" and _name[0] != "_":
                globals()[_name] = _value
                __all__.append(_name)
