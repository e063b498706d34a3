"""What a command runs on, in words."""

import os
import platform
from pathlib import Path

from minigrad_kernels.toolchain import threads

from .. import cuda

__all__ = ["machine"]

CPUINFO = Path("/proc/cpuinfo")


def machine(device, ranks=1):
    """{name: text} of the system, the processor, its threads, and the GPU where the device is one."""
    found = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "threads": str(threads()),
        "device": device,
    }
    if device.startswith("cuda"):
        number = int(device.partition(":")[2] or 0)
        found["GPU"] = f"{cuda.get_device_name(number)}, {cuda.mem_get_info(number)[1] / (1 << 20):,.0f} MiB"
    return found | ({"ranks": str(ranks)} if ranks > 1 else {})


def _processor():
    """Its name: Linux knows more of it than Python does."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
