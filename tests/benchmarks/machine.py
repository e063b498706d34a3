"""What figures were measured with: kept beside them in the results files."""

import importlib.metadata
import importlib.util
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
    if Path("/proc/cpuinfo").exists():
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    wanted = [name for name in ("numpy", "numba", "llvmlite", "torch", *packages) if installed(name)]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in wanted},
    }


def installed(package):
    """Whether Python finds a package; it is not imported."""
    return importlib.util.find_spec(package) is not None
