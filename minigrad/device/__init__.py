"""Where arrays live: array module, memory, element types and random numbers of each device.

Everything above this package handles arrays through it and never asks whether they are NumPy's or CuPy's.
"""

from .arithmetic import (
    accumulate,
    broadcast_shapes,
    elementwise,
    reduce,
    select,
)
from .arrays import (
    arange,
    array_module,
    asarray,
    assign,
    can_hold_a_sum,
    cast,
    constant,
    contiguous,
    copy,
    device_of,
    element_type,
    empty,
    empty_like,
    fill,
    from_dlpack,
    full,
    host,
    is_writable,
    may_share_memory,
    move,
    order_of,
    strided,
    workspace,
    zeros,
)
from .places import (
    CPU,
    common_place,
    emit_nvtx,
    gpu_name,
    is_array,
    is_device,
    marked,
    marking,
    place,
    place_of,
    there,
    used_places,
)
from .random import Generator, default_generator, generator, manual_seed
from .room import check_room, naming, refuse_memory
from .types import default_dtype, is_floating, is_half, is_number, promote, result_dtype, sum_dtype


def empty_cache():
    """Give memory that no array uses back to the system, on all devices."""
    for used in used_places():
        used.empty_cache()


def memory_statistics(device="cpu"):
    """How much memory arrays of a device hold, in bytes, and how much of it is kept for later ones."""
    return place(device).statistics()


def synchronize(device="cuda"):
    """Wait until a device has done all that it was told, then raise what it has reported."""
    place(device).synchronize()


__all__ = [
    "CPU",
    "Generator",
    "accumulate",
    "arange",
    "array_module",
    "asarray",
    "assign",
    "broadcast_shapes",
    "can_hold_a_sum",
    "cast",
    "check_room",
    "common_place",
    "constant",
    "contiguous",
    "copy",
    "default_dtype",
    "default_generator",
    "device_of",
    "element_type",
    "elementwise",
    "empty",
    "empty_cache",
    "emit_nvtx",
    "empty_like",
    "fill",
    "from_dlpack",
    "full",
    "generator",
    "gpu_name",
    "host",
    "is_array",
    "is_device",
    "is_floating",
    "is_half",
    "is_number",
    "is_writable",
    "manual_seed",
    "marked",
    "marking",
    "may_share_memory",
    "memory_statistics",
    "move",
    "naming",
    "order_of",
    "place",
    "place_of",
    "promote",
    "reduce",
    "refuse_memory",
    "result_dtype",
    "select",
    "strided",
    "sum_dtype",
    "synchronize",
    "there",
    "workspace",
    "zeros",
]
