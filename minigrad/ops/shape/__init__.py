"""Ops that rearrange elements: views, joins, selections."""

from . import joins, select, views
from .joins import *
from .select import *
from .views import *

__all__: list[str] = []
__all__ += joins.__all__
__all__ += select.__all__
__all__ += views.__all__
