"""Checks and measurements on an NVIDIA GPU: tests/gpu/run_all PART... [--out FOLDER] [--limit SECONDS] [--commit NAME]

graphs       training steps: the same bits twice and as graphs, losses near the CPU's, and the time of both
sanitizer    every kernel at small sizes under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
correctness  the tables of tests/kernels/cases and every rung of every ladder, on the device
ops          every op of the engine beside the CPU, on the device
kernels      memory-bound kernels beside a device copy
profiles     the device's time and memory by the profiler, beside events around the whole
ranks        NCCL's collectives with one rank, replicas as threads, several ranks where NCCL takes them
training     the main jobs by the package's command: the CPU's accuracy, and the same bits twice
peers        beside PyTorch, all of these:
products     each rung of the matrix product in each type beside cuBLAS
convolutions each rung of convolution and of its gradients in each type beside cuDNN
networks     images a second and memory of whole networks, eager and as graphs
race         seconds of training to an accuracy on MNIST

Needs numpy, cupy, numba and pytest (with pytest-xdist the two tables take less time), which `pip install -e
.[test,cuda13]` brings together with mpiexec for several ranks; PyTorch for peers, compute-sanitizer on the PATH for
that part alone. MNIST is trained on where MINIGRAD_DATA names a folder with it. Where there is no
CUDA compiler, kernels come from a cache named by MINIGRAD_CACHE, or the driver compiles PTX of the archive that
MINIGRAD_PTX names. --commit says what is measured where the files are not in a repository.

Each part is a process of its own, ends within the limit (8 minutes), and adds its section to one file,
FOLDER/<gpu>.json; other sections stay as they are. A part that fails or is too late leaves what it had found by then,
with "failed" and "why". The exit code is 0 if all parts succeeded, 2 where there is no GPU.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import date
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ["products", "convolutions", "networks", "race"]
PARTS = ["graphs", "sanitizer", "correctness", "ops", "kernels", "profiles", "ranks", "training", *PEERS]
FILES = {"sanitizer": "small", "ops": "correctness", "products": "ladders", "convolutions": "ladders"}
LIMIT = 480
MERCY = 20  # seconds that a part may take to end by itself after its limit


def commit():
    """The commit that is measured, with a plus sign if files were changed since; unknown outside a repository."""
    run = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    try:
        known, changed = run("rev-parse", "--short", "HEAD"), run("status", "--porcelain", "--", "kernels", "minigrad")
    except FileNotFoundError:
        return "unknown"
    return "unknown" if known.returncode else known.stdout.strip() + "+" * bool(changed.stdout.strip())


def machine():
    """What the figures were measured with. No context of the GPU is made."""
    import cupy
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
        **{name: version(name) for name in ("numba", "torch") if find_spec(name)},
        "commit": commit(),
        "date": date.today().isoformat(),
    }


def run_here(part, section, limit):
    """Run a part in this process; a file gets what it found, also where it fails or is late. The exit code."""
    found = {}

    def late():
        section.write_text(json.dumps(found | {"failed": True, "why": f"not finished in {limit:.0f} s"}))
        os._exit(1)

    guard = threading.Timer(limit, late)
    guard.daemon = True
    guard.start()
    try:
        getattr(import_module(f"tests.gpu.{FILES.get(part, part)}"), part)(found)
    except Exception as error:  # whatever it is, what was found so far counts
        traceback.print_exc()
        found |= {"failed": True, "why": f"{type(error).__name__}: {error}"}
    guard.cancel()
    section.write_text(json.dumps(found))
    return 1 if found.get("failed") else 0


def run_part(part, folder, limit, here, program=("-m", "tests.gpu.main")):
    """Run a part on the machine `here` in a process of its own, by a program of Python; whether it succeeded.

    It gets its section of the results file; other parts keep theirs, with the machine that they were run on.
    """
    print(f"==> {part}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        section = Path(place, "section.json")
        command = [sys.executable, "-u", *program, part, "--section", section, "--limit", str(limit)]
        with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit + MERCY)
            with contextlib.suppress(ProcessLookupError):  # all that it started have ended
                os.killpg(process.pid, signal.SIGKILL)
        found = json.loads(section.read_text()) if section.exists() else {"failed": True, "why": "ended without a word"}
    seconds, name = round(time.monotonic() - begun, 1), re.sub(r"[^a-z0-9]+", "-", here["gpu"].lower())
    file = folder / f"{name}.json"
    results = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    results["parts"][part] = {"machine": here} | found | {"seconds": seconds}
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1) + "\n")
    print(f"<== {part}: {found.get('why', 'failed' if found.get('failed') else 'passed')}, {seconds} s", flush=True)
    return not found.get("failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "peers"], metavar="PART")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "benchmarks" / "results")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="for each part")
    parser.add_argument("--commit", metavar="NAME", help="what is measured, if git does not say")
    parser.add_argument("--section", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.section:
        return run_here(*options.parts, options.section, options.limit)
    try:
        here = machine()
    except Exception as error:  # of the import, of the driver
        print(f"tests/gpu/run_all: needs CuPy and an NVIDIA GPU: {error}", file=sys.stderr)
        return 2
    here["commit"] = options.commit or here["commit"]
    parts = [part for name in options.parts for part in (PEERS if name == "peers" else [name])]
    return 0 if all([run_part(part, options.out, options.limit, here) for part in parts]) else 1


if __name__ == "__main__":
    sys.exit(main())
