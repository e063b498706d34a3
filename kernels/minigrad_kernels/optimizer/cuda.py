"""Update rules on CUDA: one launch passes over all parameters (kernels: cuda_kernels.py).

The elements of all arrays are cut into chunks of CHUNK, each the work of one block; tables on the device say where the
arrays lie and which chunk is which. The numbers that change from step to step lie on the device too, float64 in the
order of rules.py. A kernel of one thread makes coefficients of them there and counts the step, so a step of training is
two launches and sends nothing, and repeating the two launches is the next step.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..toolchain import elements
from ..toolchain.cuda.memory import address, on_host, upload, write
from . import cuda_kernels
from .cuda_kernels import CHUNK, THREADS
from .plan import chunks_of
from .rules import ROOM, RULES

KINDS = 5  # of arrays: parameters, gradients, three states
LIMIT = 1 << 31  # elements of an array


class Tables(NamedTuple):
    """Where the arrays of a call lie, on their device."""

    addresses: Any  # (KINDS, tensors) of uint64; of a state that is not there, those of the parameters
    chunks: Any  # (chunks, 3) of int32, see chunks_of
    starts: Any  # (tensors + 1,) of int32: the first chunk of each array
    present: int  # bit k: there is a state k
    bytes: int  # of an element


def addresses(arrays):
    return tuple(map(address, arrays))


def tables(rows, sizes, like):
    """Tables from rows of addresses, those of the parameters first; a row of a state that is not there is empty."""
    if max(sizes) >= LIMIT:
        raise ShapeError(f"optimizer: an array has {max(sizes)} elements, wants less than {LIMIT}")
    full = [row or rows[0] for row in rows] + [rows[0]] * (KINDS - len(rows))
    present = sum(1 << k for k, row in enumerate(rows[2:]) if row)
    chunks, starts = chunks_of(sizes, CHUNK)
    both = upload(np.concatenate([chunks.ravel(), starts]).astype(np.int32), like)
    places = upload(np.array(full, np.uint64), like)
    return Tables(places, both[: chunks.size].reshape(-1, 3), both[chunks.size :], present, like.dtype.itemsize)


class Settings:
    """The hyper-parameters of a call site on the device, and the coefficients that a kernel makes of them.

    The addresses stay for good; new numbers are written to where the old ones are. Of steps that were skipped, and of
    launches that a graph repeated, only the device knows: what it counts is left to it as long as the host goes on
    from what it has sent.
    """

    def __init__(self, op, like):
        self.op, self.like = op, like
        self.hyper = None  # float64, in the order of rules.py
        self.held = None  # what `hyper` holds by now where no step was skipped or repeated, None if it is not known
        single, self.double = upload(np.zeros(ROOM + 1, np.float32), like), upload(np.zeros(ROOM + 1), like)
        self.numbers = {4: single, 8: self.double}  # the coefficients and whether to skip, by the bytes of an element
        self.one, self.zero = upload(np.array([1.0]), like), upload(np.array([0.0]), like)

    def serves(self, op, like):
        return self.op == op and self.like.device == like.device

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


def _start(kernel, found, *arguments):
    """Start a kernel with a block for each chunk, if there are any."""
    if len(found.chunks):
        kernel[found.bytes]((len(found.chunks),), (THREADS,), (found.addresses, found.chunks, *arguments))


def _update(op, plan, hyper, scale, found_inf):
    found, settings, rule = plan.tables, plan.settings, list(RULES).index(op)
    if not len(found.chunks):
        return
    if settings is None or not settings.serves(op, found.addresses):
        settings = plan.settings = Settings(op, found.addresses)
    settings.send(hyper)
    scale, found_inf = settings.one if scale is None else scale, settings.zero if found_inf is None else found_inf
    given = settings.hyper, scale, found_inf, settings.numbers[4], settings.numbers[8], rule
    cuda_kernels.coefficients((1,), (1,), given)
    _start(cuda_kernels.update, found, settings.numbers[found.bytes], found.present, rule)
    settings.advance(hyper)


sgd, adam, rmsprop, adagrad = (partial(_update, op) for op in RULES)


def squared_norms(plan, out, workspace):
    found = plan.tables
    sums = elements(workspace, out, out.dtype, len(found.chunks))
    _start(cuda_kernels.squares, found, sums, 0)
    cuda_kernels.sums((out.size,), (THREADS,), (sums, found.starts, out))


def clip_factor(squares, max_norm, norm, factor, inverse, found_inf):
    given = squares, norm.reshape(1), factor, inverse, found_inf, max_norm
    cuda_kernels.clip[norm.itemsize]((1,), (THREADS,), given)


def scale(plan, factor):
    if isinstance(factor, float):
        factor = upload(np.array([factor]), plan.tables.addresses)
    _start(cuda_kernels.scale, plan.tables, 0, factor)
