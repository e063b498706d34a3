"""What figures were measured with: kept beside them in the results files."""

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from pathlib import Path


def versions(*packages):
    """Date, commit, CPU, and the versions of what computes; of further packages where they are installed.

    Nothing is imported for it, so that the process that asks stays small.
    """
    folder = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True)
    cpu = platform.processor() or platform.machine()
    if (file := Path("/proc/cpuinfo")).exists():
        named = re.search(r"^model name\s*: (.*)$", file.read_text(), re.MULTILINE)
        cpu = named[1].strip() if named else cpu
    found = {}
    for name in ("numpy", "numba", "llvmlite", "torch", *packages):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **found,
    }
