"""The operations on Tensors, a family a file or folder: value, formula and gradients of each stand together.

Each file says in its __all__ which of its functions are public ops.
"""

from . import contract as _contract
from . import conv as _conv
from . import elementwise as _elementwise
from . import loss as _loss
from . import matmul as _matmul
from . import normalization as _normalization
from . import pool as _pool
from . import random as _random
from . import reduce as _reduce
from . import resize as _resize
from . import scans as _scans
from . import shape as _shape
from . import softmax as _softmax
from .autocast import by_table as _by_table
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

__all__: list[str] = []
__all__ += _contract.__all__
__all__ += _conv.__all__
__all__ += _elementwise.__all__
__all__ += _loss.__all__
__all__ += _matmul.__all__
__all__ += _normalization.__all__
__all__ += _pool.__all__
__all__ += _random.__all__
__all__ += _reduce.__all__
__all__ += _resize.__all__
__all__ += _scans.__all__
__all__ += _shape.__all__
__all__ += _softmax.__all__

globals().update(_by_table({name: globals()[name] for name in __all__}))

from . import methods as _methods  # noqa: E402, F401  (binds + - * / @ [] and the methods of Tensor to the ops above)
