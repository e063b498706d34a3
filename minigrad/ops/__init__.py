"""The operations on Tensors, a family a file or folder: value, formula and gradients of each stand together.

Each file says in its __all__ which of its functions are public ops.
"""

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

from . import methods as _methods  # noqa: E402, F401  (binds + - * / @ [] and the methods of Tensor to the ops above)
