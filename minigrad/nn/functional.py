"""The ops under the name that PyTorch's users look for: everything in minigrad.ops."""

from typing import TYPE_CHECKING

from ..ops import *

if TYPE_CHECKING:

    def __getattr__(name): ...  # type checkers do not follow an __all__ that is put together
