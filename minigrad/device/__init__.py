"""Where arrays live: array module, memory, element types and random numbers of each device.

Everything above this package handles arrays through it and never asks whether they are NumPy's or CuPy's. Its face is
what these files name in their __all__:

    places          the devices by name, and the one that holds an array
    arrays          element types; arrays made, moved, copied, laid out and added up
    arithmetic      elementwise, select: arrays combined under PyTorch's type rules
    memory          the pool of the CPU, and whether the host has room
    random          generators whose state can be saved

and behind it `interpreter`, `cuda` (the one that imports CuPy) and `graphs` are what their devices are.
"""

import sys
import types

from . import places
from .arithmetic import *
from .arrays import *
from .memory import *
from .places import *
from .random import *


class _Package(types.ModuleType):
    def __call__(self, type, index=None):
        """The name of a device, as torch.device makes it: device("cuda:1"), device("cuda", 1) or device(1)."""
        name = f"cuda:{type}" if isinstance(type, int) else type if index is None else f"{type}:{index}"
        if not places.is_device(name):
            places.place(name, "device")  # which says what is wanted
        return places.DeviceName(name)


sys.modules[__name__].__class__ = _Package
