"""The errors of minigrad; see minigrad_kernels.errors."""

from minigrad_kernels.errors import (
    ExchangeError,
    KindError,
    MinigradError,
    MissingError,
    OutOfMemory,
    ShapeError,
    StateError,
    SubscriptError,
)

__all__ = [
    "ExchangeError",
    "KindError",
    "MinigradError",
    "MissingError",
    "OutOfMemory",
    "ShapeError",
    "StateError",
    "SubscriptError",
]
