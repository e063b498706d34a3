"""Where arrays live: array module, memory, element types and random numbers of each device.

Everything above this package handles arrays through it and never asks whether they are NumPy's or CuPy's.
"""

from .arrays import (
    accumulate,
    array_module,
    asarray,
    broadcast_shapes,
    can_hold_a_sum,
    cast,
    contiguous,
    copy,
    device_of,
    element_type,
    elementwise,
    empty,
    empty_like,
    from_dlpack,
    full,
    host,
    is_array,
    is_device,
    move,
    order_of,
    select,
    workspace,
    zeros,
)
from .memory import empty_cache, memory_statistics
from .random import Generator, default_generator, manual_seed
from .types import default_dtype, is_floating, promote, result_dtype

__all__ = [
    "Generator",
    "accumulate",
    "array_module",
    "asarray",
    "broadcast_shapes",
    "can_hold_a_sum",
    "cast",
    "contiguous",
    "copy",
    "default_dtype",
    "default_generator",
    "device_of",
    "element_type",
    "elementwise",
    "empty",
    "empty_cache",
    "empty_like",
    "from_dlpack",
    "full",
    "host",
    "is_array",
    "is_device",
    "is_floating",
    "manual_seed",
    "memory_statistics",
    "move",
    "order_of",
    "promote",
    "result_dtype",
    "select",
    "workspace",
    "zeros",
]
