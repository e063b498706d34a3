"""Checks and measurements on an NVIDIA GPU: tests/gpu/run_all PART... [--out FOLDER] [--limit SECONDS]

correctness  the tables of tests/cases and every rung of every ladder, on the device
sanitizer    every kernel at small sizes under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
kernels      each rung's time beside cuBLAS or a device copy, and the host time of a launch
convolutions each rung of convolution and of its gradients beside cuDNN, which needs PyTorch
training     the main jobs by the package's command: the CPU's accuracy, and the same bits twice
networks     images a second of whole networks, training and inference, beside PyTorch eager

Needs numpy, cupy, numba and pytest; PyTorch for convolutions and networks, compute-sanitizer for that part alone. MNIST
is trained on where MINIGRAD_DATA names a folder with it. Where there is no CUDA compiler, kernels come from a cache named by MINIGRAD_CACHE, else from the PTX in the package. Each part is a
process of its own, ends within the limit (8 minutes), and adds its section to one file, FOLDER/<gpu>.json.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("correctness", "sanitizer", "kernels", "convolutions", "training", "networks")
LIMIT = 480


def commit():
    """The commit that is measured, with a plus sign if files were changed since; unknown outside a repository."""
    run = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    try:
        known, changed = run("rev-parse", "--short", "HEAD"), run("status", "--porcelain", "--", "kernels", "minigrad")
    except FileNotFoundError:
        return "unknown"
    return "unknown" if known.returncode else known.stdout.strip() + "+" * bool(changed.stdout.strip())


def machine():
    """What the figures were measured with."""
    import cupy
    import numba
    import numpy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "gpu": properties["name"].decode(),
        "multiprocessors": properties["multiProcessorCount"],
        "memory_bytes": properties["totalGlobalMem"],
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "python": platform.python_version(),
        "cupy": cupy.__version__,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
        "commit": commit(),
        "date": date.today().isoformat(),
    }


def section(part):
    """What a part found: run in its own process."""
    from importlib import import_module

    return import_module(f"tests.gpu.{part}").run()


def merge(file, part, found):
    """Add a part's section to the results file; other parts keep theirs, with the machine that they were run on."""
    results = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    results["parts"][part] = found
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(results, indent=1) + "\n")
    temporary.replace(file)


def run_part(part, folder, limit):
    """Whether the part succeeded. The line of its output that is JSON is its section."""
    print(f"==> {part}", flush=True)
    begun, section = time.monotonic(), None
    command = [sys.executable, "-u", "-m", "tests.gpu.main", part, "--section"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    guard = threading.Timer(limit, process.kill)
    guard.start()
    for line in process.stdout:
        if line.startswith("{"):
            section = json.loads(line)
        else:
            print(line, end="", flush=True)
    code = process.wait()
    guard.cancel()
    found = section or {"machine": {"gpu": "unknown"}, "failed": True, "why": f"ended with exit code {code}"}
    found["seconds"] = round(time.monotonic() - begun, 1)
    name = re.sub(r"[^a-z0-9]+", "-", found["machine"]["gpu"].lower()).strip("-")
    merge(folder / f"{name}.json", part, found)
    print(f"<== {part}: exit code {code}, {found['seconds']} s", flush=True)
    return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "benchmarks" / "results")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="for each part")
    parser.add_argument("--section", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.section:
        (part,) = options.parts
        found = {"machine": machine()} | section(part)
        print(json.dumps(found))
        return 1 if found.get("failed") else 0
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # of the import, of the driver
        print(f"tests/gpu/run_all: needs CuPy and an NVIDIA GPU: {error}", file=sys.stderr)
        return 2
    return 0 if all([run_part(part, options.out, options.limit) for part in options.parts]) else 1


if __name__ == "__main__":
    sys.exit(main())
