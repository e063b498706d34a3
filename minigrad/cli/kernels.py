"""minigrad kernels: what the CUDA kernels are made of, on every architecture. No GPU is needed."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from minigrad_kernels.errors import MinigradError
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.cuda import ARCHITECTURES, SPECIFIC, report
from minigrad_kernels.toolchain.cuda.cache import SHIPPED, ship, shipped_ptx
from minigrad_kernels.toolchain.cuda.kernel import all_kernels

from .settings import UsageError

__all__ = ["run_kernels"]

UNKNOWN = ["-"] * 4  # the figures of what could not be compiled
ROW = "{:<32} {:<7} {:>9} {:>7} {:>7} {:>12}  {}"


def run_kernels(options):
    """Compile, print a table, and count what is wrong; the exit code is 1 if anything is."""
    kernels = _chosen(options)
    if options.ladder:
        return _print_ladder()
    if options.write_ptx:
        return _write_ptx(kernels, tidy=not options.names)
    print(ROW.format("kernel", "machine", "registers", "shared", "spills", "instructions", "problems"))
    compiled, wrong = 0, 0
    for kernel, rows in zip(kernels, _all_rows(kernels, options.arch), strict=True):
        for architecture, figures, problems in rows:
            print(ROW.format(kernel.name, architecture, *figures, "; ".join(problems) or "none"), flush=True)
            wrong += len(problems)
        compiled += sum(figures != UNKNOWN for _, figures, _ in rows)
        if shipped_ptx(kernel.name, kernel.key) is None:
            print(f"{kernel.name}: no PTX of this source in the package; renew it by minigrad kernels --write-ptx")
            wrong += 1
    print(f"{len(kernels)} kernels, {compiled} compiled, {wrong} problems")
    return 1 if wrong else 0


def _chosen(options):
    """The kernels whose names begin as asked for."""
    kernels = all_kernels()
    for name in options.names:
        if not any(kernel.name.startswith(name) for kernel in kernels):
            families = ", ".join(sorted({kernel.name.partition("_")[0] for kernel in kernels}))
            raise UsageError(f"{name}: no kernel begins so; their names begin with {families}")
    for name in options.arch or ():
        if name not in (*ARCHITECTURES, *SPECIFIC):
            raise UsageError(f"--arch {name}: wants one of {', '.join((*ARCHITECTURES, *SPECIFIC))}")
    return [kernel for kernel in kernels if not options.names or kernel.name.startswith(tuple(options.names))]


def _all_rows(kernels, architectures):
    """The rows of each kernel in turn. The compiler takes one thread at a time, so others work in processes."""
    workers = min(threads(), len(kernels))
    if workers == 1:
        yield from (_rows(kernel, architectures) for kernel in kernels)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_rows_by_name, [kernel.name for kernel in kernels], [architectures] * len(kernels))


def _rows_by_name(name, architectures):
    return _rows(next(kernel for kernel in all_kernels() if kernel.name == name), architectures)


def _rows(kernel, architectures):
    """(architecture, figures, problems) of each architecture that was asked for and that the kernel is made for."""
    return [
        (architecture, _figures(kernel, architecture), report.problems(kernel, architecture))
        for architecture in architectures or kernel.architectures
        if architecture in kernel.architectures
    ]


def _figures(kernel, architecture):
    try:
        found = report.resources(kernel, architecture)
    except MinigradError:  # said in the problems
        return UNKNOWN
    return [found.registers, found.shared, found.spills, found.opcodes.total()]


def _write_ptx(kernels, tidy):
    """Renew what is stale; of all kernels, also remove what belongs to none."""
    changed = [kernel.name for kernel in kernels if ship(kernel)]
    gone = [file for file in SHIPPED.glob("*.ptx") if tidy and file.stem not in {kernel.name for kernel in kernels}]
    for file in gone:
        file.unlink()
    removed = f"; {len(gone)} removed" if gone else ""
    print(f"{len(kernels)} kernels, {len(changed)} renewed: {', '.join(changed) or 'all were up to date'}{removed}")
    return 0


def _print_ladder():
    """The rungs of the matrix product beside one another, from the interpreter's counts."""
    from minigrad_kernels.matmul import ladder

    print(ladder.table())
    return 0
