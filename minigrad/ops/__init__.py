"""The operations on Tensors, a family a file: value, formula and gradients of each stand together.

Each file says in its __all__ which of its functions are public ops.
"""

from . import conv as _conv
from . import loss as _loss
from . import matmul as _matmul
from . import norm as _norm
from . import pool as _pool
from . import random as _random
from . import reduce as _reduce
from . import softmax as _softmax
from .conv import *
from .elementwise import arithmetic as _arithmetic
from .elementwise import choices as _choices
from .elementwise import functions as _functions
from .elementwise.arithmetic import *
from .elementwise.choices import *
from .elementwise.functions import *
from .loss import *
from .matmul import *
from .norm import *
from .pool import *
from .random import *
from .reduce import *
from .shape import joins as _joins
from .shape import select as _select
from .shape import views as _views
from .shape.joins import *
from .shape.select import *
from .shape.views import *
from .softmax import *

__all__: list[str] = []
__all__ += _conv.__all__
__all__ += _arithmetic.__all__
__all__ += _choices.__all__
__all__ += _functions.__all__
__all__ += _loss.__all__
__all__ += _matmul.__all__
__all__ += _norm.__all__
__all__ += _pool.__all__
__all__ += _random.__all__
__all__ += _reduce.__all__
__all__ += _joins.__all__
__all__ += _select.__all__
__all__ += _views.__all__
__all__ += _softmax.__all__
