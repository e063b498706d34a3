"""Every kernel at small sizes under each tool of compute-sanitizer."""

import shutil
import subprocess
import sys

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
LIMIT = 110  # seconds for each tool, whose kernels run up to a hundred times slower


def run():
    """Of each tool, the number of errors it found, or why it did not run."""
    program = shutil.which("compute-sanitizer")
    if not program:
        return {"failed": True, "why": "compute-sanitizer is not on the PATH"}
    found = {}
    for tool in TOOLS:
        command = [program, "--tool", tool, "--error-exitcode", "99", sys.executable, "-m", "tests.gpu.small"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            found[tool] = f"not finished in {LIMIT} s"
        else:
            last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()[-200:]
            found[tool] = "clean" if done.returncode == 0 else f"exit {done.returncode}: {last}"
            if done.returncode:
                print(done.stdout[-4000:])
        print(f"{tool}: {found[tool]}", flush=True)
    found["failed"] = any(found[tool] != "clean" for tool in TOOLS)
    return found
