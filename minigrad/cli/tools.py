"""minigrad info, math and launch."""

import os

from minigrad_kernels.toolchain.cache import cache_folder

from .. import cuda, sheet
from ..checkpoint import versions
from ..core.errors import StateError
from ..device import place
from .run import machine
from .selfcheck import checked
from .settings import UsageError


def run_info(options):
    """Versions, devices, threads and the cache of kernels."""
    try:
        place("cuda")
        gpus = [f"cuda:{number} ({cuda.get_device_name(number)})" for number in range(cuda.device_count())]
    except StateError as error:
        gpus = [f"no GPU ({str(error).partition(': ')[2]})"]
    rows = versions() | machine() | {"devices": ", ".join(["cpu", *gpus, "interpreter"])}
    rows["kernel cache"] = cache_folder() or "none: no folder can be written"
    print(*(f"{name:<14}{value}" for name, value in rows.items()), sep="\n")
    return 1 if options.check and not checked(options.device or "cuda") else 0


def run_math(options):
    """Print entries of the sheet of formulas, the list of all, or the whole page."""
    if options.page:
        print(sheet.page(), end="")
    elif options.names:
        print(*map(sheet.entry, options.names), sep="\n\n")
    else:
        for title, members in sheet.families().items():
            print(title, *(f"  {entry.name:<34}{entry.summary}" for entry in members), "", sep="\n")
        print("minigrad math NAME prints formula, gradients, shapes, types, errors and source")
    return 0


def run_launch(options):
    """Start ranks by mpiexec, and start them again when one fails; the exit code: see `minigrad launch --help`."""
    if os.name != "posix":
        raise UsageError("launch: it needs process groups, which this system has not; start the ranks by mpiexec")
    from ..parallel.launch import Launch  # wants POSIX

    words = options.words
    if words[:1] == ["minigrad"]:
        words = ["-m", *words]
    elif not words or not os.path.isfile(words[0]):
        what = f"{words[0]} is no file" if words else "nothing to start"
        raise UsageError(f"launch: {what}; want a Python script, or minigrad and its arguments")
    shared = {name: getattr(options, name) for name in ("ranks", "hosts", "max_restarts", "timeout", "grace", "logs")}
    return Launch(words, **shared).run()
