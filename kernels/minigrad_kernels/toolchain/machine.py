"""What the machine grants a process: how many CPUs of a container, and whether others want them too."""

import math
import os
import time
from pathlib import Path

__all__ = ["cpu_quota", "crowded"]

CGROUPS = Path("/sys/fs/cgroup")


def cpu_quota(groups=CGROUPS, membership=Path("/proc/self/cgroup")):
    """CPUs that the container may use, at least 1, parts of one rounded up; None where there is no such limit.

    A limit of a group above counts too. Half a CPU more is worth a thread: work is shared out in small pieces, and a
    thread that has used up its share of a period leaves the rest to the others.

    groups, membership  where Linux shows control groups, of version 2 and of version 1, and which are those of the
                        process
    """
    found = []
    for folder, limit in _limits(groups, membership):
        while True:
            if (cpus := limit(folder)) is not None:
                found.append(cpus)
            if folder == folder.parent or groups not in (folder, *folder.parents) or folder == groups:
                break
            folder = folder.parent
    return max(1, math.ceil(min(found))) if found else None


def _limits(groups, membership):
    """(folder, function that reads the limit in it) of each group of the process that may limit CPUs.

    Inside a container the path is often that of the host, of which only the end, as the root, can be seen.
    """
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        lines = []
    yield groups, _version_2
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers:
            yield groups / path.lstrip("/"), _version_2
        elif "cpu" in controllers.split(","):
            for name in dict.fromkeys((controllers, "cpu", "cpu,cpuacct")):
                yield groups / name, _version_1
                yield groups / name / path.lstrip("/"), _version_1


def _version_2(folder):
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _version_1(folder):
    try:
        quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return None if quota < 0 else quota / period
    except (OSError, ValueError, ZeroDivisionError):
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
