"""Update rules on CUDA: one launch passes over all parameters.

The elements of all tensors are cut into chunks of CHUNK, each the work of one block; tables on the device say where
the tensors lie and which chunk is which. The numbers that change from step to step lie on the device too, float64 in
the order of hyper.py. A kernel of one thread makes coefficients of them there and counts the step, so a step of
training is two launches and sends nothing, and repeating the two launches is the next step.
"""

from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..toolchain.cuda.memory import address, on_host, upload, write
from .cuda_norms import CLIP, SCALE, SQUARES, sums
from .cuda_parts import CHUNK, THREADS
from .cuda_rules import RULES
from .cuda_update import COEFFICIENTS, KINDS, coefficients, update

__all__ = [
    "Settings", "Tables", "adagrad", "adam", "addresses", "clip_factor", "rmsprop", "scale", "sgd", "squared_norms",
    "tables",
]  # fmt: skip

LIMIT = 1 << 31  # elements of a tensor: places are 32-bit inside kernels
ALIGNMENT = 8  # bytes, of partial sums


class Tables(NamedTuple):
    """Where the arrays of a call lie, on their device."""

    addresses: Any  # (KINDS, tensors) of uint64
    chunks: Any  # (chunks, 3) of int32, see cuda_parts.py
    starts: Any  # (tensors + 1,) of int32: the first chunk of each tensor
    blocks: int  # of a launch: chunks
    tensors: int
    present: int  # bit k: there is a state k
    dtype: Any  # of the elements


def _chunks(sizes):
    """The table of chunks and, behind it, the first chunk of each tensor."""
    counts = -(-sizes // CHUNK)
    starts = np.concatenate([[0], np.cumsum(counts)])
    tensor = np.repeat(np.arange(sizes.size), counts)
    start = (np.arange(tensor.size) - np.repeat(starts[:-1], counts)) * CHUNK
    rows = np.stack([tensor, start, np.minimum(sizes[tensor] - start, CHUNK)], axis=1)
    return np.concatenate([rows.ravel(), starts]).astype(np.int32)


def addresses(arrays):
    return tuple(map(address, arrays))


def tables(rows, sizes, like):
    """Tables from rows of addresses, those of the parameters first; a row of a state that is not there is empty."""
    if max(sizes) >= LIMIT:
        raise ShapeError(f"optimizer: an array has {max(sizes)} elements, wants less than {LIMIT}")
    full = [row or rows[0] for row in rows] + [rows[0]] * (KINDS - len(rows))
    chunks = upload(_chunks(np.array(sizes, np.int64)), like)
    count = (chunks.size - len(sizes) - 1) // 3
    present = sum(1 << k for k, row in enumerate(rows[2:]) if row)
    addresses = upload(np.array(full, np.uint64), like)
    return Tables(addresses, chunks, chunks[3 * count :], count, len(sizes), present, like.dtype)


class Settings:
    """The hyper-parameters of a call site on the device, and the coefficients that a kernel makes of them.

    The addresses stay for good; new numbers are written to where the old ones are. Of steps that were skipped, and of
    launches that a graph repeated, only the device knows: what it counts is left to it as long as the host goes on
    from what it has sent.
    """

    def __init__(self, op, like):
        self.op, self.like = op, like
        self.hyper = None  # float64, in the order of hyper.py
        self.held = None  # what `hyper` holds by now where no step was skipped or repeated, None if it is not known
        self.single = upload(np.zeros(COEFFICIENTS, np.float32), like)
        numbers = upload(np.array([0.0] * COEFFICIENTS + [1.0, 0.0]), like)
        self.double, self.one, self.zero = numbers[:-2], numbers[-2:-1], numbers[-1:]

    def send(self, hyper):
        """Have the device hold these numbers for the next step, which costs nothing where it does already."""
        if self.hyper is None:
            self.hyper = upload(hyper, self.like)
        elif self.held is None or self.held[-1] != hyper[-1]:
            write(self.hyper, hyper)
        elif self.held.tobytes() != hyper.tobytes():
            write(self.hyper[:-1], hyper[:-1])

    def advance(self, hyper):
        """Note what the device holds after a step with these numbers."""
        after = hyper.copy()
        after[-1] = 0 if self.op == "sgd" else after[-1] + 1
        self.held = after

    def counted(self):
        """Read what the device has counted: of SGD whether the next step is the first, of others its number.

        None where no step was made.
        """
        if self.hyper is None or self.held is None:
            return None
        self.held[-1] = count = float(on_host(self.hyper)[-1])
        return count

    def repeat(self, hyper):
        """Before a captured step is repeated with these numbers."""
        self.send(hyper)
        self.advance(hyper)

    def retract(self, hyper):
        """After a step with these numbers was captured that will never be launched."""
        self.held = hyper.copy()


def _update(op, plan, hyper, scale, found_inf):
    found, settings = plan.tables, plan.settings
    if not found.blocks:
        return
    if settings is None or settings.op != op:
        settings = plan.settings = Settings(op, found.addresses)
    rule, always, possible = RULES[op]
    settings.send(hyper)
    settings.held = None  # unless both kernels start
    scale, found_inf = settings.one if scale is None else scale, settings.zero if found_inf is None else found_inf
    coefficients((1,), (1,), (settings.hyper, scale, found_inf, settings.single, settings.double, rule))
    numbers = settings.single if found.dtype == np.float32 else settings.double
    arguments = found.addresses, found.chunks, numbers, found.tensors, (found.present | always) & possible, rule
    update[found.dtype.itemsize]((found.blocks,), (THREADS,), arguments)
    settings.advance(hyper)


def sgd(plan, hyper, scale, found_inf):
    _update("sgd", plan, hyper, scale, found_inf)


def adam(plan, hyper, scale, found_inf):
    _update("adam", plan, hyper, scale, found_inf)


def rmsprop(plan, hyper, scale, found_inf):
    _update("rmsprop", plan, hyper, scale, found_inf)


def adagrad(plan, hyper, scale, found_inf):
    _update("adagrad", plan, hyper, scale, found_inf)


def squared_norms(plan, out, workspace):
    found = plan.tables
    if not found.blocks:
        out.fill(0)
        return
    start = -address(workspace) % ALIGNMENT
    partial = workspace[start : start + found.blocks * 8].view(np.float64)
    SQUARES[found.dtype]((found.blocks,), (THREADS,), (found.addresses, found.chunks, partial, 0))
    sums((found.tensors,), (THREADS,), (partial, found.starts, out))


def clip_factor(squares, max_norm, norm, factor, inverse, found_inf):
    given = (inverse is not None) + 2 * (found_inf is not None)
    numbers = squares, norm, factor, inverse if given & 1 else 0, found_inf if given & 2 else 0
    CLIP[norm.dtype]((1,), (THREADS,), (*numbers, max_norm, squares.size, given))


def scale(plan, factor):
    found = plan.tables
    if isinstance(factor, float):
        factor = upload(np.array([factor]), found.addresses)
    if found.blocks:
        SCALE[found.dtype]((found.blocks,), (THREADS,), (found.addresses, found.chunks, 0, factor))
