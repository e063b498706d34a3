"""Where arrays lie on their device, and how small tables get there."""

from collections import OrderedDict

import numpy as np

__all__ = ["VECTOR", "address", "aligned", "kept", "upload"]

VECTOR = 16  # bytes that one thread can load at once, from an address that is a multiple of them
KEPT = 256  # tables on devices
_kept: "OrderedDict[tuple, object]" = OrderedDict()  # by device and content, the last one used stands last


def address(array):
    """Where the first element of an array lies: in the memory of the host, of the interpreter, or of a GPU."""
    if type(array) is np.ndarray:
        return array.__array_interface__["data"][0]
    if isinstance(array, np.ndarray):
        from ...interpreter import address as interpreted

        return interpreted(array)
    return array.data.ptr


def aligned(*arrays):
    """Whether all arrays begin where 128-bit accesses may."""
    return all(address(array) % VECTOR == 0 for array in arrays)


def upload(array, like):
    """A copy of a NumPy array on the device that holds `like`."""
    if isinstance(like, np.ndarray):
        from ...interpreter import array as interpreted

        return interpreted(array)
    from .launch import upload as launched

    return launched(array)


def kept(table, like):
    """A NumPy array on the device that holds `like`, to be read only: equal ones are uploaded once while in use."""
    place = type(like) if isinstance(like, np.ndarray) else like.data.device_id
    key = place, table.dtype.str, table.shape, table.tobytes()
    found = _kept.pop(key, None)
    if found is None:
        found = upload(table, like)
        if not isinstance(found, np.ndarray):
            found.device.synchronize()  # other streams may be the next to read it
    _kept[key] = found
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return found
