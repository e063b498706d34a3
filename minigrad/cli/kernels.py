"""minigrad kernels"""

import contextlib
import itertools
import multiprocessing
import platform
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np

import minigrad_kernels
from minigrad_kernels.errors import MinigradError
from minigrad_kernels.interpreter import array, empty, recording
from minigrad_kernels.matmul import cuda as matmul
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.cuda import ARCHITECTURES, SPECIFIC, report
from minigrad_kernels.toolchain.cuda.kernel import KERNELS, all_kernels

from .settings import UsageError

__all__ = ["run_kernels"]

ROW = "{:<32} {:<7} {:>9} {:>7} {:>7} {:>12}  {}"
MANIFEST = Path(minigrad_kernels.__file__).with_name("manifest.csv")
COLUMNS = "kernel,registers,shared,spills,instructions,bytes in the inner loop,instructions in the inner loop"
TOOLS = ("numba", "numba-cuda", "llvmlite", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvdisasm")
USUAL = "sm_80"  # of which the manifest speaks; where a kernel is not made for it, of its oldest


def run_kernels(options):
    """Compile, print a table, and count what is wrong; the exit code is 1 if anything is."""
    if options.ladder:
        _ladder()
        return 0
    names, known = [kernel.name for kernel in all_kernels()], ARCHITECTURES + SPECIFIC
    if options.write:
        MANIFEST.write_text("\n".join([_tools(), COLUMNS, *_lines(names), ""]), encoding="utf-8", newline="\n")
        print(f"{len(names)} kernels: {MANIFEST}")
        return 0
    for name in options.names:
        if not any(one.startswith(name) for one in names):
            families = ", ".join(sorted({one.partition("_")[0] for one in names}))
            raise UsageError(f"{name}: no kernel begins so; their names begin with {families}")
    if unknown := {*options.arch} - {*known}:
        raise UsageError(f"--arch {', '.join(unknown)}: wants one of {', '.join(known)}")
    chosen = [name for name in names if not options.names or name.startswith(tuple(options.names))]
    if options.check:
        return _compare(chosen, whole=not options.names)
    print(ROW.format("kernel", "machine", "registers", "shared", "spills", "instructions", "problems"))
    compiled = wrong = 0
    for name, architecture, figures, problems in _rows_of(chosen, options.arch):
        found = figures[:4] or ["-"] * 4
        print(ROW.format(name, architecture, *found, "; ".join(problems) or "none"), flush=True)
        wrong += len(problems)
        compiled += bool(figures)
    print(f"{len(chosen)} kernels, {compiled} compiled, {wrong} problems")
    return 1 if wrong else 0


def _ladder(size=256):
    """What each rung of the matrix product costs for square matrices of float32, counted by the interpreter.

    Ideal: the least that the same accesses could take.
    """
    rng = np.random.default_rng(0)
    a, b = (array(rng.standard_normal((size, size), np.float32)) for _ in range(2))
    line = "{:<10}{:>14}{:>12}{:>12}{:>12}{:>12}{:>11}"
    print(f"matrix product of size {size}")
    print(line.format("rung", "instructions", "sectors", "ideal", "wavefronts", "ideal", "registers"))
    for rung in ("plain", "tiled", "register", "buffered"):
        with recording() as launches:
            matmul.forward(a, b, None, False, empty((size, size)), None, rung)
        ((name, found),) = launches
        counts, registers = found.counts, "-"
        with contextlib.suppress(MinigradError):  # neither a compiler nor machine code kept by one
            registers = KERNELS[name].binary("sm_90").registers
        sectors = counts.global_sectors, counts.global_sectors_ideal
        wavefronts = counts.shared_wavefronts, counts.shared_wavefronts_ideal
        print(line.format(rung, sum(counts.instructions.values()), *sectors, *wavefronts, registers))


def _rows_of(names, architectures):
    """The rows of kernels in turn. The compiler takes one thread at a time, so others work in processes."""
    work, workers = partial(_rows, architectures), min(threads(), len(names))
    if workers == 1:
        parts = map(work, names)
    else:
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), all_kernels)
        parts = pool.map(work, names)
    return itertools.chain.from_iterable(parts)


def _rows(architectures, name):
    """[(name, architecture, figures as in the manifest, problems)] of a kernel on those that it is made for.

    Where it is made for none of those that are asked for, on its oldest.
    """
    kernel, rows = KERNELS[name], []
    wanted = [one for one in architectures or kernel.architectures if one in kernel.architectures]
    for architecture in wanted or kernel.architectures[:1]:
        figures = []
        with contextlib.suppress(MinigradError):  # said in the problems
            made, inner = kernel.binary(architecture), report.inner_loop(kernel, architecture)
            figures = [made.registers, made.shared, made.spills, len(report.code(kernel, architecture))]
            figures += [report.bytes_moved(inner), inner.total()]
        rows.append((name, architecture, figures, report.problems(kernel, architecture)))
    return rows


# ---- the manifest ------------------------------------------------------------------------------------------------


def _tools():
    """The first line of the manifest: what made it, in words that pip takes, and for which architectures."""
    try:
        found = " ".join(f"{name}=={metadata.version(name)}" for name in TOOLS)
    except metadata.PackageNotFoundError as error:
        found = f"no {error.name}"
    python = ".".join(platform.python_version_tuple()[:2])
    return f"# {found}; Python {python}; {USUAL}, of kernels for {SPECIFIC[0]} alone {SPECIFIC[0]}"


def _lines(names):
    """The lines of the manifest, one a kernel."""
    return [",".join(map(str, (name, *figures))) for name, _, figures, _ in _rows_of(names, [USUAL])]


def _compare(names, whole):
    """Print what differs between kernels and the manifest; the exit code is 1 if anything does."""
    tools, _, *lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    if tools != _tools():
        print(f"nothing is compared: the manifest is of other tools\n- {tools}\n+ {_tools()}")
        return 0
    now, before = set(_lines(names)), {line for line in lines if whole or line.partition(",")[0] in names}
    different = sorted((line.partition(",")[0], line in now, line) for line in before ^ now)
    for _, new, line in different:
        print("+" if new else "-", line)
    hint = "; minigrad kernels --write renews it" if different else ""
    print(f"{len(now)} kernels, {len({name for name, *_ in different})} differ from the manifest{hint}")
    return 1 if different else 0
