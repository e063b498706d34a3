"""Every kernel at small sizes under each tool of compute-sanitizer."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from .small import LAST

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
LIMIT = 360  # seconds; kernels run up to a hundred times slower under a tool, and the tools run side by side
COMMAND = (sys.executable, "-m", "tests.gpu.small", "cuda")


def outcome(command):
    """ "clean", or what went wrong in a few words; all that was printed goes to the log then."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"not finished in {LIMIT} s"
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode == 0 and LAST in lines:
        return "clean"
    print(*lines[:40], "...", *lines[-40:], sep="\n", flush=True)
    return f"exit code {done.returncode}: {lines[-1] if lines else 'no output'}"


def run(found):
    """Of each tool "clean" or what it said."""
    program = shutil.which("compute-sanitizer")
    if not program:
        found |= {"failed": True, "why": "compute-sanitizer is not on the PATH"}
        return
    found["alone"] = outcome(COMMAND)  # the driver keeps what it compiles here for the others
    if found["alone"] == "clean":
        commands = {tool: (program, "--tool", tool, "--error-exitcode", "99", *COMMAND) for tool in TOOLS}
        with ThreadPoolExecutor(len(TOOLS)) as pool:
            for tool, said in zip(TOOLS, pool.map(outcome, commands.values()), strict=True):
                found[tool] = said
                print(f"  {tool}: {said}", flush=True)
    found["failed"] = any(found.get(tool) != "clean" for tool in TOOLS)
