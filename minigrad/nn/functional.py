"""The ops under the name that PyTorch's users look for: everything in minigrad.ops."""

from .. import ops
from ..ops import *

__all__: list[str] = []
__all__ += ops.__all__
