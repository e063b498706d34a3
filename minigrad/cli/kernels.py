"""minigrad kernels and minigrad interpret"""

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
from minigrad_kernels import interpreter
from minigrad_kernels.errors import MinigradError
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.cuda import ARCHITECTURES, SPECIFIC, report
from minigrad_kernels.toolchain.cuda.kernel import KERNELS, all_kernels

from .settings import UsageError

ROW = "{:<32} {:<7} {:>9} {:>7} {:>7} {:>12}  {}"
MANIFEST = Path(minigrad_kernels.__file__).with_name("manifest.csv")
COLUMNS = "kernel,registers,shared,spills,instructions,bytes in the inner loop,instructions in the inner loop"
TOOLS = ("numba", "numba-cuda", "llvmlite", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvdisasm")
USUAL = "sm_80"  # of which the manifest speaks; where a kernel is not made for it, of its oldest


def run_kernels(options):
    """Compile, print a table, and count what is wrong; the exit code is 1 if anything is.

    With --check, figures that are not those of the manifest are wrong too. With --write, the figures become the
    manifest.
    """
    every, known = [kernel.name for kernel in all_kernels()], ARCHITECTURES + SPECIFIC
    names = [name for name in every if name.startswith(tuple(options.names or [""]))]
    if not names:
        families = ", ".join(sorted({name.partition("_")[0] for name in every}))
        raise UsageError(f"{options.names[0]}: no kernel begins so; their names begin with {families}")
    if unknown := {*options.arch} - {*known}:
        raise UsageError(f"--arch {', '.join(unknown)}: wants one of {', '.join(known)}")
    (tools, _, *before), made_by = MANIFEST.read_text(encoding="utf-8").splitlines(), _tools()
    if options.check and tools != made_by:
        print(f"nothing is compared: the manifest is of other tools\n- {tools}\n+ {made_by}")
        return 0
    architectures = [USUAL] if options.check or options.write else options.arch
    print(ROW.format("kernel", "machine", "registers", "shared", "spills", "instructions", "problems"))
    lines, compiled, wrong = [], 0, 0
    for name, architecture, figures, problems in _rows_of(names, architectures):
        lines.append(",".join(map(str, (name, *figures))))
        if options.check and lines[-1] not in before:
            problems.append(f"not the manifest's: {lines[-1]}")
        found = figures[:4] or ["-"] * 4
        print(ROW.format(name, architecture, *found, "; ".join(problems) or "none"), flush=True)
        wrong += len(problems)
        compiled += bool(figures)
    left = [line for line in before if options.check and line.partition(",")[0] not in every]
    for line in left:
        print(f"no kernel has this line of the manifest: {line}")
    wrong += len(left)
    print(f"{len(names)} kernels, {compiled} compiled, {wrong} problems")
    if options.write:
        MANIFEST.write_text("\n".join([made_by, COLUMNS, *lines, ""]), encoding="utf-8", newline="\n")
    return 1 if wrong else 0


def _tools():
    """What the figures depend on, as the first line of the manifest."""
    try:
        made_by = " ".join(f"{name}=={metadata.version(name)}" for name in TOOLS)
    except metadata.PackageNotFoundError as error:
        made_by = f"no {error.name}"
    python = ".".join(platform.python_version_tuple()[:2])
    return f"# {made_by}; Python {python}; {USUAL}, of kernels for {SPECIFIC[0]} alone {SPECIFIC[0]}"


def _rows_of(names, architectures):
    """The rows of kernels in turn. The compiler takes one thread at a time, so others work in processes."""
    workers, process = min(threads(), len(names)), multiprocessing.get_context("spawn")
    each = map if workers == 1 else ProcessPoolExecutor(workers, process, all_kernels).map
    return itertools.chain.from_iterable(each(partial(_rows, architectures), names))


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


def run_interpret(options):
    """Run a kernel from a file of PTX; print what it wrote, what it cost, and its faults, with exit code 1 if any."""
    arguments = [_argument(word) for word in options.args]
    text, sizes = Path(options.ptx).read_text(encoding="utf-8"), (tuple(options.grid), tuple(options.block))
    report = interpreter.interpret(text, *sizes, arguments, options.shared)
    for name, array in report.outputs.items():
        print(f"argument {name}, {array.dtype} {array.shape}: {np.array2string(np.asarray(array), threshold=16)}")
    print(report.counts, *(str(fault) for fault in report.faults), f"{len(report.faults)} faults", sep="\n")
    return 1 if report.faults else 0


def _argument(word):
    """A number; the array in a file x.npy; memory that nobody wrote, as float32[8,3] says."""
    try:
        if word.endswith(".npy"):
            return interpreter.array(np.load(word))
        dtype, bracket, shape = word.removesuffix("]").partition("[")
        if bracket:
            return interpreter.empty([int(size) for size in shape.split(",")], dtype)
        return int(word) if word.lstrip("-").isdigit() else float(word)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--args: got {word}, want a number, a file x.npy, or memory such as float32[8,3]") from error
