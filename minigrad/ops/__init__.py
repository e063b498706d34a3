"""The operations on Tensors, a family a file or folder: value, formula and gradients of each stand together.

Each file says in its __all__ which of its functions are public ops.
"""

import functools
import inspect

from . import attention, contract, conv, elementwise, loss, normalization, pool, random, reduce, resize, scans, shape
from . import matmul as _matmul  # an op has the name of the file
from . import softmax as _softmax
from .attention import *
from .contract import *
from .conv import *
from .elementwise import *
from .loss import *
from .matmul import *
from .normalization import *
from .pool import *
from .random import *
from .reduce import *
from .resize import *
from .scans import *
from .shape import *
from .softmax import *

_FAMILIES = [attention, contract, conv, elementwise, loss, _matmul, normalization, pool]
_FAMILIES += [random, reduce, resize, scans, shape, _softmax]
__all__ = [name for family in _FAMILIES for name in family.__all__]


def _with_names_of_numpy(op):
    """The op, which takes axis= for dim= and keepdims= for keepdim= too, as all of PyTorch's do."""

    @functools.wraps(op)
    def run(*args, **named):
        for name, own in (("axis", "dim"), ("keepdims", "keepdim")) if named else ():
            if name in named:
                named[own] = named.pop(name)
        return op(*args, **named)

    return run


for _name in __all__:
    _op = globals()[_name]
    if inspect.isfunction(_op) and "dim" in inspect.signature(_op).parameters:
        globals()[_name] = _with_names_of_numpy(_op)

from . import methods as _methods  # noqa: E402, F401  (binds + - * / @ [] and the methods of Tensor to the ops above)
