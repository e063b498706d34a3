"""Where arrays lie on their device, how small tables get there, and which rung of a ladder of kernels runs."""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ..modes import capturing

VECTOR = 16  # bytes that one thread can load at once, from an address that is a multiple of them
KEPT = 256  # tables on devices
_kept: "OrderedDict[tuple, object]" = OrderedDict()  # by device and content, the last one used stands last


class View(NamedTuple):
    """The memory from an array's first element or an address on, as a kernel is to see it; strides in bytes."""

    array: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def itemsize(self):
        return self.array.itemsize


def address(array):
    """Where the first element of an array lies: in the memory of the host, of the interpreter, or of a GPU."""
    if type(array) is np.ndarray:
        return array.__array_interface__["data"][0]
    if isinstance(array, np.ndarray):
        from ...interpreter import address as interpreted

        return interpreted(array)
    return array.data.ptr


def aligned(*arrays, to=VECTOR):
    """Whether all arrays begin at multiples of so many bytes: where accesses of that size may."""
    return all(address(array) % to == 0 for array in arrays)


def upload(array, like):
    """A copy of a NumPy array on the device that holds `like`."""
    if isinstance(like, np.ndarray):
        from ...interpreter import array as interpreted

        return interpreted(array)
    if (recorder := capturing.get()) is not None:
        return recorder.upload(array)
    from .launch import upload as launched

    return launched(array)


def write(target, values):
    """New numbers, NumPy's, for a small dense array of a device, in the order of the current stream."""
    if isinstance(target, np.ndarray):
        target[...] = values
    elif (recorder := capturing.get()) is not None:
        recorder.write(target, values)
    else:
        from .launch import write as launched

        launched(target, values)


def on_host(array):
    """A copy of an array as NumPy's; waits for the device."""
    return np.array(array) if isinstance(array, np.ndarray) else array.get()


def kept(table, like):
    """A NumPy array on the device that holds `like`, to be read only: equal ones are uploaded once while in use."""
    place = type(like) if isinstance(like, np.ndarray) else like.data.device_id
    key = place, table.dtype.str, table.shape, table.tobytes()
    found = _kept.pop(key, None)
    if found is None:
        found = upload(table, like)
        if not isinstance(found, np.ndarray) and capturing.get() is None:
            found.device.synchronize()  # other streams may be the next to read it
    _kept[key] = found
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return found


def choose(op, rung, fitting):
    """The name of a rung: the one that was asked for, or the highest that fits.

    fitting: names of the rungs that take the arrays of a call, lowest first
    Errors  ValueError if there is no such rung, or it does not fit
    """
    if rung is None:
        return fitting[-1]
    if rung not in fitting:
        raise ShapeError(f"{op}: rung is {rung!r}, wants one that takes such arrays: {', '.join(fitting)}")
    return rung
