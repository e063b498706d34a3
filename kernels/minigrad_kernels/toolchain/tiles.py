from .packing import SIDE, turn  # noqa: F401
