"""Switches of PyTorch that programs set: accepted, and without effect, since there is nothing here that they switch.

minigrad.backends.cudnn.benchmark = True       our kernels are chosen by the shapes alone
minigrad.backends.cudnn.deterministic = True   equal seeds give equal bits anyway; see minigrad.deterministic
minigrad.backends.cuda.matmul.allow_tf32 = True    see minigrad.tf32, which switches it
minigrad.backends.mps.is_available()           False: GPUs of Apple are not used
minigrad.accelerator.is_available()            whether there is a GPU, by the name that PyTorch has for any kind
"""

from types import SimpleNamespace

from . import cuda as gpu
from .device.places import DeviceName

__all__ = ["accelerator", "cuda", "cudnn", "mps"]

cuda = SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))
cudnn = SimpleNamespace(benchmark=False, deterministic=True, enabled=False, is_available=lambda: False)
mps = SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
accelerator = SimpleNamespace(
    is_available=gpu.is_available,
    device_count=gpu.device_count,
    current_accelerator=lambda check_available=False: DeviceName("cuda") if gpu.is_available() else None,
)
