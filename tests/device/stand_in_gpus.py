"""GPUs of the stand-in for CuPy as devices of the engine."""

import contextlib

from minigrad.device import places
from minigrad_kernels.toolchain.cuda import memory
from tests import standin

__all__ = ["gpus"]

MODULES = "minigrad.device.cuda", "minigrad.device.graphs", "minigrad.parallel.nccl"  # which import CuPy


@contextlib.contextmanager
def gpus(devices=2, forget=(), **options):
    """Has the engine find so many GPUs, "cuda:0" being the current one; gives the stand-in's Machine."""

    def clear():
        places._cuda.cache_clear()
        memory._kept.clear()  # tables on GPUs that are there no more

    with standin.installed(devices, forget=(*MODULES, *forget), **options) as machine:
        clear()
        try:
            yield machine
        finally:
            clear()
