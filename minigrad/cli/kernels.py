"""minigrad kernels: what the CUDA kernels are made of, on every architecture. No GPU is needed."""

from minigrad_kernels.errors import MinigradError
from minigrad_kernels.toolchain.cuda import ARCHITECTURES, report
from minigrad_kernels.toolchain.cuda.cache import ship, shipped_ptx
from minigrad_kernels.toolchain.cuda.kernel import all_kernels

from .settings import UsageError

__all__ = ["run_kernels"]

ROW = "{:<32} {:<7} {:>9} {:>7} {:>7} {:>12}  {}"


def run_kernels(options):
    """Compile, print a table, and count what is wrong; the exit code is 1 if anything is."""
    kernels = _chosen(options)
    if options.ladder:
        return _print_ladder()
    if options.write_ptx:
        return _write_ptx(kernels)
    print(ROW.format("kernel", "machine", "registers", "shared", "spills", "instructions", "problems"))
    compiled, wrong = 0, 0
    for kernel in kernels:
        for architecture in options.arch or kernel.architectures:
            if architecture not in kernel.architectures:
                continue
            problems = _print_row(kernel, architecture)
            compiled, wrong = compiled + 1, wrong + len(problems)
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
            raise UsageError(
                f"{name}: no kernel is called so; there are {', '.join(kernel.name for kernel in kernels)}"
            )
    for name in options.arch or ():
        if name not in ARCHITECTURES:
            raise UsageError(f"--arch {name}: wants one of {', '.join(ARCHITECTURES)}")
    return [kernel for kernel in kernels if not options.names or kernel.name.startswith(tuple(options.names))]


def _print_row(kernel, architecture):
    problems = report.problems(kernel, architecture)
    try:
        found = report.resources(kernel, architecture)
        figures = [found.registers, found.shared, found.spills, found.opcodes.total()]
    except MinigradError:  # said in the problems
        figures = ["-"] * 4
    print(ROW.format(kernel.name, architecture, *figures, "; ".join(problems) or "none"), flush=True)
    return problems


def _write_ptx(kernels):
    changed = [kernel.name for kernel in kernels if ship(kernel)]
    print(f"{len(kernels)} kernels, {len(changed)} renewed: {', '.join(changed) or 'all were up to date'}")
    return 0


def _print_ladder():
    """The rungs of the matrix product beside one another, from the interpreter's counts."""
    from minigrad_kernels.matmul import ladder

    print(ladder.table())
    return 0
