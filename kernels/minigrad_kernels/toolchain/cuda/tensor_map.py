"""Tensor maps: how kernels tell the tensor memory accelerator of Hopper where a matrix lies and which boxes to bring.

The driver makes them on the host, 128 bytes each, and kernels get tables of them by pointer. A table is copied to the
device before the launch; that its map is read as it was written is what fence.proxy.tensormap::generic.acquire.sys is
for, which every block that uses a map executes first (see tma.acquire_map): the copy is an access through the generic
proxy, at the scope of the system because the host wrote it, and bulk copies read maps through the tensormap proxy.

Source  NVIDIA, "CUDA Driver API", Tensor Map Object Management; "CUDA C++ Programming Guide", Tensor Memory Access
"""

import ctypes
import functools
import sys

import numpy as np

from ...errors import StateError
from .memory import address, kept

__all__ = ["tables"]

KINDS = {"uint16": 1, "float16": 6, "bfloat16": 9}  # CUtensorMapDataType
# No interleaving; how lines turn; what the cache loads; outside.
PLAIN, TURNED_128, SECOND_CACHE_256, ZEROS = 0, 3, 3, 0
ALIGNMENT, WORDS = 64, 16  # bytes; of 64 bits in a map


@functools.cache
def _driver():
    """The driver's function; CuPy offers none for it.

    Errors  RuntimeError where there is no driver, or one from before CUDA 12.0
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        function = ctypes.CDLL(name).cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise StateError(f"tensor map: {name} lacks cuTensorMapEncodeTiled: {error}; ask for a lower rung") from error
    number, sizes, boxes = ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)
    function.argtypes = (
        ctypes.c_void_p, number, ctypes.c_uint32, ctypes.c_void_p, sizes, sizes, boxes, boxes, *(number,) * 4,
    )  # fmt: skip
    function.restype = number
    return function


def _encoded(kind, map_):
    """The 16 words of a map for a GPU; map_: an interpreter's TensorMap."""
    memory = (ctypes.c_uint64 * (WORDS + ALIGNMENT // 8))()
    skip = -ctypes.addressof(memory) % ALIGNMENT // 8
    pair, short = ctypes.c_uint64 * 2, ctypes.c_uint32 * 2
    result = _driver()(
        ctypes.addressof(memory) + 8 * skip, KINDS[kind], 2, map_.address, pair(map_.columns, map_.rows),
        (ctypes.c_uint64 * 1)(map_.stride), short(map_.box_columns, map_.box_rows), short(1, 1),
        PLAIN, TURNED_128, SECOND_CACHE_256, ZEROS,
    )  # fmt: skip
    if result:
        raise StateError(f"tensor map: the driver refuses {map_} with error {result}; ask for a lower rung")
    return np.array(memory[skip : skip + WORDS], np.uint64)


@functools.lru_cache(maxsize=1024)
def _table(kind, map_, apart, count, on_gpu):
    from ...interpreter.tensor_map import encode

    maps = (map_._replace(address=map_.address + i * apart) for i in range(count))
    return np.concatenate([_encoded(kind, one) if on_gpu else encode(one) for one in maps])


def tables(array, rows, columns, stride, box, apart, count):
    """Maps of `count` matrices that begin at the first element of an array, on its device: 16 words for each.

    stride: from row to row, apart: from matrix to matrix, in elements; 0: one map serves all. box: (rows, columns)
    Errors  ValueError for what maps cannot describe, RuntimeError where the driver cannot make them
    """
    from ...interpreter.tensor_map import TensorMap

    size, count = array.itemsize, count if apart else 1
    if rows and columns:
        map_ = TensorMap(address(array), rows, columns, stride * size if rows > 1 else 16, *box, size)
        table = _table(array.dtype.name, map_, apart * size, count, not isinstance(array, np.ndarray))
    else:  # nobody will read it
        table = np.zeros(count * WORDS, np.uint64)
    return kept(table, array)
