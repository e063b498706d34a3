"""The errors of minigrad; see minigrad_kernels.errors."""

from minigrad_kernels.errors import KindError, MinigradError, MissingError, ShapeError, StateError, SubscriptError

__all__ = ["KindError", "MinigradError", "MissingError", "ShapeError", "StateError", "SubscriptError"]
