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

from .arithmetic import *
from .arrays import *
from .memory import *
from .places import *
from .random import *
