"""What the machine grants a process: how many CPUs of a container, and how its threads wait for each other."""

import contextlib
import math
import os
from pathlib import Path

__all__ = ["brief_spinning", "cpu_quota"]

CGROUPS = Path("/sys/fs/cgroup")
SPINS = 2000  # looks at a flag before a waiting thread sleeps, some 50 microseconds
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


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


@contextlib.contextmanager
def brief_spinning():
    """Inside, a team of GNU's OpenMP that is started gets threads that spin only briefly before they sleep.

    By default they look at a flag for milliseconds. On a machine with other work a thread that waits then keeps the
    CPU that the one it waits for would need, and a training step takes ten times as long. The library reads the
    environment once, when it is loaded: so the variable is there meanwhile alone, and only if the user has not said
    how threads should wait.
    """
    if any(name in os.environ for name in WAITING):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = str(SPINS)
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]
