"""Ops that rearrange elements: views, joins, copies, borders, windows, selections, order."""

from . import arrange, joins, order, pads, pick, select, sliding, views
from .arrange import *
from .joins import *
from .order import *
from .pads import *
from .pick import *
from .select import *
from .sliding import *
from .views import *

__all__: list[str] = []
__all__ += arrange.__all__
__all__ += joins.__all__
__all__ += order.__all__
__all__ += pads.__all__
__all__ += pick.__all__
__all__ += select.__all__
__all__ += sliding.__all__
__all__ += views.__all__
