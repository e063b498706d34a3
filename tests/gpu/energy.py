"""Energy that the GPU has used, where the driver tells: nvmlDeviceGetTotalEnergyConsumption, in millijoules."""

import ctypes
import functools

import cupy

__all__ = ["joules"]


@functools.cache
def _meter():
    """(NVML, the handle of the current GPU); None where the driver does not tell."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle, bus = ctypes.c_void_p(), cupy.cuda.Device().pci_bus_id
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle)):
        return None
    return nvml, handle


def joules():
    """Energy since the driver was loaded; None where it does not tell."""
    meter, used = _meter(), ctypes.c_ulonglong()
    if meter is None or meter[0].nvmlDeviceGetTotalEnergyConsumption(meter[1], ctypes.byref(used)):
        return None
    return used.value / 1000
