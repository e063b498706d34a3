"""What `minigrad launch` starts as a rank: python -P rank.py FOLDER COMMAND...

FOLDER holds what the launcher wants to know of each rank afterwards. rank-R.json says on which host and as which
process it ran, and how it ended. rank-R.log has what it printed; rank 0 has none, it prints where the launcher does.
The rank is a child of this process. It notes its own end before it waits for the others; if it cannot, this process
does.
"""

import ctypes
import json
import os
import platform
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

FAILED = 75  # EX_TEMPFAIL: exit code of a process that others failed, in a job that may be tried again
HARD = 128  # exit codes of what a signal ended are above
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h
ERRORS = "minigrad.parallel.errors"  # which say that others failed
CHILD = "--child"


def with_parent():
    """Called in a child: Linux kills it when its parent is killed."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def main(folder, *words):
    """Run the words by Python as a child, and end all ranks where it ends badly."""
    rank = next((os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if os.environ.get(name)), "0")
    path = Path(folder, f"rank-{rank}.json")
    output = None if rank == "0" else path.with_suffix(".log").open("ab")
    command = [sys.executable, "-P", __file__, CHILD, str(path), *words]
    # mpiexec talks with its ranks through descriptors that they inherit.
    child = subprocess.Popen(command, stdout=output, stderr=output, close_fds=False, preexec_fn=with_parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)  # mpiexec sends it to the child too, which is in its group
    code = child.wait()
    record = json.loads(path.read_text()) if path.exists() else {"pid": child.pid, "host": platform.node()}
    if "code" not in record:
        path.write_text(json.dumps(record | {"code": code, "at": time.time()}))
    if code:  # mpiexec ends the others where a rank is killed; where one exits, only some do
        os.kill(os.getpid(), signal.SIGKILL)


def run(path, *words):
    """In the child: run a script, or a module after -m, as Python does, and note how it ends."""
    note = lambda record: Path(path).write_text(json.dumps(record))
    note(record := {"pid": os.getpid(), "host": platform.node()})
    code = 0
    try:
        if words[0] == "-m":
            sys.argv, sys.path[:0] = list(words[1:]), [os.getcwd()]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[:0] = list(words), [os.path.dirname(os.path.abspath(words[0]))]
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException as error:
        code = FAILED if type(error).__module__ == ERRORS else 1
        record |= {"why": f"{type(error).__name__}: {error}"}
        raise
    finally:
        note(record | {"code": code, "at": time.time()})


if __name__ == "__main__":
    if sys.argv[1] == CHILD:
        run(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
