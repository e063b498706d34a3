"""GPUs of the stand-in for CuPy as devices of the engine."""

import contextlib

from minigrad import device, parallel
from minigrad.device import places
from minigrad_kernels.toolchain.cuda import memory
from tests import standin

__all__ = ["gpus"]

NAMES = {device: ("cuda", "graphs"), parallel: ("nccl",)}  # modules that import CuPy, by their package
MODULES = tuple(f"{package.__name__}.{name}" for package, names in NAMES.items() for name in names)


@contextlib.contextmanager
def gpus(devices=2, forget=(), **options):
    """Has the engine find so many GPUs, "cuda:0" being the current one; gives the stand-in's Machine."""

    def forgotten():
        places._cuda.cache_clear()
        for package, names in NAMES.items():
            for name in names:
                package.__dict__.pop(name, None)
        memory._kept.clear()  # tables on GPUs that are there no more

    with standin.installed(devices, forget=(*MODULES, *forget), **options) as machine:
        forgotten()
        try:
            yield machine
        finally:
            forgotten()
