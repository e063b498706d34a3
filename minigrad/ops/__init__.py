"""The operations on Tensors, a family a file or folder: value, formula and gradients of each stand together.

Each file says in its __all__ which of its functions are public ops.
"""

from . import contract as _contract
from . import matmul as _matmul
from . import pool as _pool
from . import random as _random
from . import resize as _resize
from . import softmax as _softmax
from .autocast import by_table as _by_table
from .contract import *
from .conv import forms as _forms
from .conv.forms import *
from .elementwise import activations as _activations
from .elementwise import arithmetic as _arithmetic
from .elementwise import choices as _choices
from .elementwise.activations import *
from .elementwise.arithmetic import *
from .elementwise.choices import *
from .loss import classes as _classes
from .loss import distributions as _distributions
from .loss import regression as _regression
from .loss.classes import *
from .loss.distributions import *
from .loss.regression import *
from .matmul import *
from .normalization import batch as _batch
from .normalization import samples as _samples
from .normalization.batch import *
from .normalization.samples import *
from .pool import *
from .random import *
from .reduce import extremes as _extremes
from .reduce import norms as _norms
from .reduce import scans as _scans
from .reduce import sums as _sums
from .reduce.extremes import *
from .reduce.norms import *
from .reduce.scans import *
from .reduce.sums import *
from .resize import *
from .shape import arrange as _arrange
from .shape import joins as _joins
from .shape import order as _order
from .shape import pads as _pads
from .shape import pick as _pick
from .shape import select as _select
from .shape import views as _views
from .shape.arrange import *
from .shape.joins import *
from .shape.order import *
from .shape.pads import *
from .shape.pick import *
from .shape.select import *
from .shape.views import *
from .softmax import *

__all__: list[str] = []
__all__ += _contract.__all__
__all__ += _matmul.__all__
__all__ += _pool.__all__
__all__ += _random.__all__
__all__ += _resize.__all__
__all__ += _softmax.__all__
__all__ += _extremes.__all__
__all__ += _norms.__all__
__all__ += _scans.__all__
__all__ += _sums.__all__
__all__ += _forms.__all__
__all__ += _classes.__all__
__all__ += _distributions.__all__
__all__ += _regression.__all__
__all__ += _batch.__all__
__all__ += _samples.__all__
__all__ += _activations.__all__
__all__ += _arithmetic.__all__
__all__ += _choices.__all__
__all__ += _arrange.__all__
__all__ += _joins.__all__
__all__ += _order.__all__
__all__ += _pads.__all__
__all__ += _pick.__all__
__all__ += _select.__all__
__all__ += _views.__all__

globals().update(_by_table({name: globals()[name] for name in __all__}))

from . import methods as _methods  # noqa: E402, F401  (binds + - * / @ [] and the methods of Tensor to the ops above)
