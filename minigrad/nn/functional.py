"""The ops under the name that PyTorch's users look for: everything in minigrad.ops."""

from typing import TYPE_CHECKING

from .. import ops
from ..ops import *

__all__: list[str] = []
__all__ += ops.__all__

if TYPE_CHECKING:

    def __getattr__(name): ...  # type checkers do not follow an __all__ that is put together
