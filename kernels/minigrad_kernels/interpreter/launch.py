"""A launch: arguments to parameters, batches of blocks, and the report."""

import math
import struct
from collections import Counter, defaultdict
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from ..errors import KindError, ShapeError
from .array import base_address, byte_range, register
from .lanes import Geometry
from .machine import Machine
from .memory import Windows
from .operations import DTYPES
from .program import SHARED_START, plain_name
from .report import Report
from .slots import FIRST_ARRAY, allocate
from .translate import BRANCHES, translate

BATCH_THREADS = 4096
BATCH_SHARED = 2 << 20
LARGEST_SHARED = 227 << 10
BUDGET = 4_000_000
_recordings: ContextVar[tuple[list, ...]] = ContextVar("recordings", default=())
LIMITS = {"grid": (2**31 - 1, 65535, 65535), "block": (1024, 1024, 64)}


def interpret(kernel, grid, block, arguments, shared=0, budget=BUDGET):
    """Execute a kernel's PTX for all threads of a grid.

    kernel     PTX text, or an object with ptx(), name and parameters ((name, type), ...) such as ("x", "f32*"); it may
               have a method flat(arguments) that gives an argument for each of these
    grid       blocks, and block: threads of each, as tuples of one to three sizes
    arguments  one for each parameter: arrays, or what `address` gave, for pointers; numbers for the rest. Kernels
               write into the arrays that are passed
    shared     bytes of dynamic shared memory
    budget     how many instructions a batch of blocks may execute before it counts as endless
    Gives a Report: outputs, counts, faults.
    Errors  TypeError for arguments of the wrong number or kind, ValueError for sizes that the kernel or a GPU cannot
            have, RuntimeError for PTX that is not known, for trap, and where the budget is used up
    """
    code = translate(kernel if isinstance(kernel, str) else kernel.ptx())
    name = code.program.name if isinstance(kernel, str) else kernel.name
    declared = None if isinstance(kernel, str) else kernel.parameters
    arguments = kernel.flat(arguments) if hasattr(kernel, "flat") else arguments
    grid, block = (_sizes(name, what, sizes) for what, sizes in (("grid", grid), ("block", block)))
    shared_end = _check_sizes(name, code.program, block, shared)
    arrays, values = _parameters(name, declared, code.program, arguments)

    machine = Machine(code, math.prod(grid) > 1, budget)
    machine.everywhere = _windows(machine, arrays)
    blocks = math.prod(grid)
    batch = min(blocks, max(1, BATCH_THREADS // math.prod(block)), max(1, BATCH_SHARED // shared_end))
    with np.errstate(all="ignore"):
        for first in range(0, blocks, batch):
            here = min(batch, blocks - first)
            if not first or here != batch:
                geometry = Geometry(grid, block, here)
                registers = allocate(code.program, code.slots, geometry, values, shared)
            machine.run(geometry, registers, first, shared_end)
    _count(code, machine)
    outputs = {parameter: array for parameter, array in arrays.items() if parameter in machine.counts.bytes_stored}
    report = Report(outputs, machine.counts, list(machine.faults.values()))
    for reports in _recordings.get():
        reports.append((name, report))
    return report


@contextmanager
def recording():
    """Gives a list to which every launch that is interpreted inside adds (name of the kernel, Report).

    For kernels that are started by launchers, whose reports nobody else sees; those of other threads are left out.
    """
    reports: list[tuple[str, Report]] = []
    token = _recordings.set((*_recordings.get(), reports))
    try:
        yield reports
    finally:
        _recordings.reset(token)


def _sizes(name, what, sizes):
    sizes = tuple(sizes) if isinstance(sizes, tuple | list) else (sizes,)
    if not 1 <= len(sizes) <= 3 or any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in sizes):
        raise KindError(f"{name}: {what} is {sizes}, wants one to three whole numbers")
    full = (*map(int, sizes), 1, 1)[:3]
    if any(not 1 <= n <= limit for n, limit in zip(full, LIMITS[what], strict=True)):
        hint = "; start no kernel where there is nothing to do" if 0 in full else ""
        raise ShapeError(f"{name}: {what} is {sizes}, wants sizes from 1 to {LIMITS[what]}{hint}")
    return full


def _check_sizes(name, program, block, shared):
    """The end of shared memory, if block and memory are within their limits."""
    threads, most = math.prod(block), min(program.most_threads or 1024, 1024)
    if threads > most:
        raise ShapeError(f"{name}: block {block} has {threads} threads, the kernel is compiled for at most {most}")
    end = program.dynamic + shared if shared else program.shared
    if shared < 0 or end - SHARED_START > LARGEST_SHARED:
        raise ShapeError(
            f"{name}: shared is {shared}: with {program.shared - SHARED_START} bytes of its own the kernel "
            f"takes {end - SHARED_START} bytes of shared memory, wants 0 to {LARGEST_SHARED}"
        )
    return end


def _parameters(name, declared, program, arguments):
    """(arrays by parameter, bytes of every parameter). declared: ((name, type such as "f32*"), ...) or None."""
    declared = declared or [(str(i), f".{ptx}") for i, (_, ptx) in enumerate(program.parameters)]
    if not len(declared) == len(program.parameters) == len(arguments):
        wants = ", ".join(f"{kind} {parameter}" for parameter, kind in declared)
        raise KindError(f"{name}: got {len(arguments)} arguments, wants {len(declared)}: {wants}")
    arrays, values = {}, []
    for (parameter, kind), (_, ptx), argument in zip(declared, program.parameters, arguments, strict=True):
        what, pointer = f"{name}: {parameter}", kind.endswith("*") or kind in (".u64", ".b64")
        if ptx not in DTYPES:
            raise KindError(f"{what} is of type .{ptx}, which is not known")
        if isinstance(argument, np.ndarray) and (argument.ndim or pointer):
            _check_array(what, kind, pointer, argument)
            arrays[parameter] = argument
            argument = base_address(argument, register(argument))
        values.append(_encode(what, kind, np.dtype(DTYPES[ptx]), pointer, argument))
    return arrays, values


def _check_array(what, kind, pointer, array):
    """An array fits a pointer to elements as large as its own; bytes, as of a workspace, fit any."""
    if not pointer:
        raise KindError(f"{what} is an array, wants a number ({kind})")
    size = array.itemsize if kind[0] == "." else int(kind[1:-1]) // 8
    numeric = array.dtype.kind in "biufc" or array.dtype.name == "bfloat16"
    if not numeric or array.itemsize not in (1, size) or not array.dtype.isnative:
        raise KindError(f"{what} has type {array.dtype}, wants elements of {size} bytes ({kind})")


def _encode(what, kind, dtype, pointer, argument):
    """The bytes of one number."""
    number = argument.item() if isinstance(argument, np.ndarray | np.generic) else argument
    if not isinstance(number, bool | int | float) or (isinstance(number, float) and dtype.kind != "f"):
        wants = "an array or an address" if pointer else "a number"
        raise KindError(f"{what} is {argument!r} ({type(argument).__name__}), wants {wants} ({kind})")
    size = 8 * dtype.itemsize
    try:
        if dtype.kind == "f":
            return struct.pack({16: "<e", 32: "<f", 64: "<d"}[size], number)
        low, high = -(1 << size - 1) * (kind[0] != "u"), 1 << size - (kind[0] == "i")
        if low <= number < high:
            return (int(number) % (1 << size)).to_bytes(dtype.itemsize, "little")
    except (OverflowError, struct.error):  # the latter of whole numbers
        pass
    raise ShapeError(f"{what} is {number!r:.20}, which does not fit {kind}")


def _windows(machine, arrays):
    """The memory that the launch sees: the arrays that are passed, and those of the module."""
    named = defaultdict(list)
    for name, array in arrays.items():
        named[register(array).number].append((*byte_range(array), bool(array.flags.writeable), name))
    windows = Windows(machine, named)
    for number, (name, data) in enumerate(machine.code.program.arrays):
        windows.add_variable(FIRST_ARRAY + number, name, data)
    return windows


def _count(code, machine):
    """How often warps executed each opcode."""
    opcodes: Counter[str] = Counter()
    for start, run in code.runs.items():
        warps = machine.executed[start]
        for instruction in code.program.instructions[start : start + run.length] if warps else ():
            plain = instruction.guard is None or instruction.parts[0] in BRANCHES
            opcodes[instruction.opcode] += warps if plain else machine.guarded[instruction.number]
    for opcode, number in opcodes.items():
        if number:
            machine.counts.instructions[plain_name(opcode)] += number
