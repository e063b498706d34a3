"""What the machine grants a process: how many CPUs of a container, and whether others want them too."""

import math
import os
import time
from pathlib import Path

__all__ = ["cpu_quota", "crowded"]


def cpu_quota(groups=Path("/sys/fs/cgroup")):
    """CPUs that the container may use, at least 1, parts of one rounded up; None where there is no such limit.

    Half a CPU more is worth a thread: work is shared out in small pieces, and a thread that has used up its share of a
    period leaves the rest to the others.

    groups      where Linux shows a container its control group, of version 2 or of version 1
    """
    try:
        if (groups / "cpu.max").exists():
            quota, period = (groups / "cpu.max").read_text().split()
        else:
            quota, period = ((groups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return max(1, math.ceil(int(quota) / int(period))) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # "max": no limit
        return None


def crowded(load=Path("/proc/loadavg"), looks=3):
    """Whether others want CPUs that this process would use at this moment; False where nobody can tell.

    Threads of GNU's OpenMP that wait for each other keep looking at a flag for milliseconds. On a free machine that is
    best: the next region of a training step begins before they would sleep, and one of 5.5 ms takes 7.9 where they
    sleep at once. Beside other work a thread that looks keeps the CPU which the one that it waits for would need (8.9
    ms against 6.4). To look only for a while is worst of both: it loses CPUs, and then waits for its turn.
    """
    try:
        running = []
        for _ in range(looks):
            running.append(int(load.read_text().split()[3].partition("/")[0]))
            time.sleep(0.001)
    except (OSError, ValueError, IndexError):
        return False
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(running) - 1 + mine > (os.cpu_count() or 1)  # one of those that run is this process
