"""minigrad kernels: what the CUDA kernels are made of, on every architecture. No GPU is needed."""

import multiprocessing
import platform
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import minigrad_kernels
from minigrad_kernels.errors import MinigradError
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.cuda import ARCHITECTURES, SPECIFIC, report
from minigrad_kernels.toolchain.cuda.kernel import KERNELS, all_kernels

from .settings import UsageError

__all__ = ["run_kernels"]

UNKNOWN = ["-"] * 4  # the figures of what could not be compiled
ROW = "{:<32} {:<7} {:>9} {:>7} {:>7} {:>12}  {}"
MANIFEST = Path(minigrad_kernels.__file__).with_name("manifest.csv")
COLUMNS = "kernel,registers,shared,spills,instructions,bytes in the inner loop,instructions in the inner loop"
TOOLS = ("numba", "numba-cuda", "llvmlite", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvdisasm")
USUAL = "sm_80"  # of which the manifest speaks; where a kernel is not made for it, of its oldest


def run_kernels(options):
    """Compile, print a table, and count what is wrong; the exit code is 1 if anything is."""
    kernels = _chosen(options)
    if options.ladder:
        return _print_ladder()
    if options.check:
        return _check(kernels, whole=not options.names)
    if options.write:
        return _write(kernels, whole=not options.names)
    print(ROW.format("kernel", "machine", "registers", "shared", "spills", "instructions", "problems"))
    compiled, wrong = 0, 0
    for kernel, rows in zip(kernels, _of_each(kernels, partial(_rows, options.arch)), strict=True):
        for architecture, figures, problems in rows:
            print(ROW.format(kernel.name, architecture, *figures, "; ".join(problems) or "none"), flush=True)
            wrong += len(problems)
        compiled += sum(figures != UNKNOWN for _, figures, _ in rows)
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


def _of_each(kernels, work):
    """work(kernel) of each in turn. The compiler takes one thread at a time, so others work in processes."""
    workers = min(threads(), len(kernels))
    if workers == 1:
        yield from map(work, kernels)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), all_kernels) as pool:
        yield from pool.map(partial(_by_name, work), [kernel.name for kernel in kernels])


def _by_name(work, name):
    return work(KERNELS[name])


def _rows(architectures, kernel):
    """(architecture, figures, problems) of each architecture that was asked for and that the kernel is made for."""
    return [
        (architecture, _known_figures(kernel, architecture), report.problems(kernel, architecture))
        for architecture in architectures or kernel.architectures
        if architecture in kernel.architectures
    ]


def _known_figures(kernel, architecture):
    try:
        return _figures(kernel, architecture)
    except MinigradError:  # said in the problems
        return UNKNOWN


def _figures(kernel, architecture):
    made = kernel.binary(architecture)
    return [made.registers, made.shared, made.spills, len(report.code(kernel, architecture))]


# ---- the manifest ------------------------------------------------------------------------------------------------


def _tools():
    """The first line of the manifest: what made it, in words that pip takes, and for which architectures."""
    found = []
    for name in TOOLS:
        try:
            found.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    python = ".".join(platform.python_version_tuple()[:2])
    return f"# {' '.join(found)}; Python {python}; {USUAL}, of kernels for {SPECIFIC[0]} alone {SPECIFIC[0]}"


def _line(kernel):
    """A kernel's line of the manifest."""
    architecture = USUAL if USUAL in kernel.architectures else kernel.architectures[0]
    inner = report.inner_loop(kernel, architecture)
    figures = *_figures(kernel, architecture), report.bytes_moved(inner), inner.total()
    return ",".join(map(str, (kernel.name, *figures)))


def _kept():
    """(first line, {kernel's name: line}) of the manifest."""
    tools, _, *lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    return tools, {line.partition(",")[0]: line for line in lines}


def _check(kernels, whole):
    """Print what differs between the kernels and the manifest; the exit code is 1 if anything does."""
    tools, before = _kept()
    if tools != _tools():
        print(f"nothing is compared: the manifest is of other tools\n- {tools}\n+ {_tools()}")
        return 0
    now = {kernel.name: line for kernel, line in zip(kernels, _of_each(kernels, _line), strict=True)}
    names = sorted(before.keys() | now.keys() if whole else now)
    different = [name for name in names if before.get(name) != now.get(name)]
    for name in different:
        for sign, lines in (("-", before), ("+", now)):
            if name in lines:
                print(sign, lines[name])
    print(f"{len(now)} kernels, {len(different)} differ from the manifest", end="")
    print("; minigrad kernels --write renews it" if different else "")
    return 1 if different else 0


def _write(kernels, whole):
    """Make the manifest anew."""
    if not whole:
        raise UsageError("--write: makes the whole manifest, wants no names")
    lines = [_tools(), COLUMNS, *_of_each(kernels, _line)]
    MANIFEST.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    print(f"{len(kernels)} kernels: {MANIFEST}")
    return 0


def _print_ladder():
    """The rungs of the matrix product beside one another, from the interpreter's counts."""
    from minigrad_kernels.matmul import ladder

    print(ladder.table())
    return 0
