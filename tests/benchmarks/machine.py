"""What figures were measured with: kept beside them in the results files."""

import importlib.metadata
import os
import platform
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
        names = [
            line.split(":", 1)[1].strip() for line in file.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = next(iter(names), cpu)
    found = {name: _version(name) for name in ("numpy", "numba", "llvmlite", "torch", *packages)}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version for name, version in found.items() if version},
    }


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
