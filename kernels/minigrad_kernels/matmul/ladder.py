"""The rungs of the matrix product beside one another: what each of them costs, counted by the interpreter."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from ..errors import StateError
from ..interpreter import array, empty, recording
from ..toolchain.cuda import KERNELS
from .cuda import RUNGS, forward

__all__ = ["Row", "costs", "rows", "table"]

ARCHITECTURE = "sm_90"  # whose registers are shown
NAMES = [name for name in RUNGS if "_" not in name and name != "split"]  # those of the largest tiles


class Row(NamedTuple):
    """Of one rung. ideal: the least that the same accesses could take."""

    rung: str
    instructions: int  # of warps
    sectors: int  # of global memory, 32 bytes each
    sectors_ideal: int
    wavefronts: int  # of shared memory
    wavefronts_ideal: int
    registers: int | None  # of a thread


def costs(rung, a, b, workspace=None):
    """{kernel's name: its Counts} of a product of two arrays of the interpreter."""
    out = empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    with recording() as launches:
        forward(a, b, None, False, out, workspace, rung)
    return {name: report.counts for name, report in launches}


def rows(size=256):
    """A Row for each rung, of one product of square matrices in C order."""
    rng, found = np.random.default_rng(0), []
    a, b = (array(rng.standard_normal((size, size), np.float32)) for _ in range(2))
    for name in NAMES:
        ((kernel, counts),) = costs(name, a, b).items()
        found.append(
            Row(
                name,
                Counter.total(counts.instructions),
                counts.global_sectors,
                counts.global_sectors_ideal,
                counts.shared_wavefronts,
                counts.shared_wavefronts_ideal,
                _registers(kernel),
            )
        )
    return found


def _registers(name):
    """Of a thread; unknown where there is neither a compiler nor machine code kept by one."""
    try:
        return KERNELS[name].binary(ARCHITECTURE).registers
    except StateError:
        return None


def table(size=256):
    """The rows as text."""
    line = "{:<10}{:>14}{:>12}{:>12}{:>12}{:>12}{:>11}"
    head = line.format("rung", "instructions", "sectors", "ideal", "wavefronts", "ideal", "registers")
    lines = [line.format(*("-" if value is None else value for value in row)) for row in rows(size)]
    return "\n".join([f"matrix product of size {size}", head, *lines])
