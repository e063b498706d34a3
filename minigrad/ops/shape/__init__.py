"""Ops that rearrange elements: views, joins, copies, borders, selections, order."""

from . import arrange, pads, pick, select, views
from .arrange import *
from .pads import *
from .pick import *
from .select import *
from .views import *

__all__ = [*arrange.__all__, *pads.__all__, *pick.__all__, *select.__all__, *views.__all__]
