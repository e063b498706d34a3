"""GPUs of the stand-in for CuPy as devices of the engine."""

import contextlib

from minigrad import device
from minigrad.device import places

from . import standin

__all__ = ["gpus"]

MODULES = ("minigrad.device.cuda", "minigrad.device.nccl")


@contextlib.contextmanager
def gpus(devices=2, **options):
    """Has the engine find so many GPUs, "cuda:0" being the current one; gives the stand-in's Machine."""

    def forget():
        places._cuda.cache_clear()
        for name in ("cuda", "nccl"):
            device.__dict__.pop(name, None)

    with standin.installed(devices, forget=MODULES, **options) as machine:
        forget()
        try:
            yield machine
        finally:
            forget()
