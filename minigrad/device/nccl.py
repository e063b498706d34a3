"""NCCL through CuPy: one GPU as a rank of a group, with a stream of its own. The only import of cupy.cuda.nccl.

Calls work on flat arrays of the GPU, on the stream, and return at once. NCCL sees addresses and numbers of elements
alone: that all ranks call alike is for the caller to make sure.
"""

import contextlib
import os
import platform
import warnings

import cupy

from minigrad_kernels.errors import StateError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of CuPy where the library is missing, which `version` says with an error
    from cupy.cuda import nccl

__all__ = ["Nccl", "identity", "shares_gpus", "version"]

OLDEST = 21801  # 2.18.1
SHARING = 23000  # 2.30.0: from there on several ranks may be told to share a GPU
URGENT = -1  # the priority of a stream whose kernels go first
TYPES = {"b": "INT8", "B": "UINT8", "i": "INT32", "I": "UINT32", "l": "INT64", "L": "UINT64", "q": "INT64"}
TYPES |= {"Q": "UINT64", "e": "FLOAT16", "f": "FLOAT32", "d": "FLOAT64", "E": "BFLOAT16"}
OPS = {"sum": "SUM", "mean": "AVG", "max": "MAX", "min": "MIN"}


def version():
    """NCCL's version as a number: 23203 is 2.32.3.

    Errors  RuntimeError where NCCL is missing or too old
    """
    package = f"nvidia-nccl-cu{cupy.cuda.runtime.runtimeGetVersion() // 1000}"
    if not nccl.available:
        raise StateError(f"NCCL is not installed; pip install {package}, or take backend='host'")
    found = nccl.get_version()
    if found < OLDEST:
        raise StateError(f"NCCL is {found}, wanted {OLDEST} (2.18.1) or newer; pip install -U {package}")
    return found


def identity():
    """The bytes by which the ranks of a new group find one another; made by one of them."""
    return nccl.get_unique_id()


def shares_gpus():
    """Whether NCCL takes several ranks on one GPU."""
    return version() >= SHARING and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"


class Nccl:
    """The rank of a GPU in a group.

    gpu     its place
    stream  on which it communicates: it does not wait for others by itself, and goes before them where both could run
    """

    errors = getattr(nccl, "NcclError", ())

    def __init__(self, gpu):
        self.gpu, self._communicator = gpu, None
        with gpu.active():
            self.stream = cupy.cuda.Stream(non_blocking=True, priority=URGENT)

    @property
    def address(self):
        """Host and bus of the GPU, which tell it from all others."""
        return f"{platform.node()} {cupy.cuda.Device(self.gpu.number).pci_bus_id}"

    def connect(self, size, key, rank):
        """Wait, without a limit, for the other ranks that know the key."""
        with self.gpu.active():
            self._communicator = nccl.NcclCommunicator(size, key, rank)

    @property
    def connected(self):
        return self._communicator is not None

    # ---- streams and events --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def active(self):
        """What is done inside is done on the stream."""
        with self.gpu.active(), self.stream:
            yield

    def reached(self):
        """An event that ends when the current stream has come to this point."""
        return cupy.cuda.get_current_stream().record(cupy.cuda.Event(disable_timing=True))

    def wait_for(self, event):
        """Let the current stream go on only after an event."""
        cupy.cuda.get_current_stream().wait_event(event)

    def is_captured(self):
        """Whether what is done on the current stream becomes part of a graph."""
        return cupy.cuda.get_current_stream().is_capturing()

    # ---- collectives ---------------------------------------------------------------------------------------------

    def adds(self, dtype):
        """Whether NCCL has sums of this element type."""
        return dtype.char in TYPES

    def all_reduce(self, flat, op):
        numbers = flat.size, *_codes(flat, op), self.stream.ptr
        self._communicator.allReduce(flat.data.ptr, flat.data.ptr, *numbers)

    def reduce_scatter(self, part, flat, op):
        numbers = part.size, *_codes(part, op), self.stream.ptr
        self._communicator.reduceScatter(flat.data.ptr, part.data.ptr, *numbers)

    def all_gather(self, whole, flat):
        numbers = flat.nbytes, nccl.NCCL_UINT8, self.stream.ptr
        self._communicator.allGather(flat.data.ptr, whole.data.ptr, *numbers)

    def broadcast(self, flat, root):
        numbers = flat.nbytes, nccl.NCCL_UINT8, root, self.stream.ptr
        self._communicator.broadcast(flat.data.ptr, flat.data.ptr, *numbers)

    def exchange(self, sent, received):
        """Send arrays to ranks while others come from there: {rank: array} of both; empty ones do not travel."""
        nccl.groupStart()
        try:
            for call, arrays in ((self._communicator.send, sent), (self._communicator.recv, received)):
                for rank, array in arrays.items():
                    if array.nbytes:
                        call(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, rank, self.stream.ptr)
        finally:
            nccl.groupEnd()

    # ---- its end -------------------------------------------------------------------------------------------------

    def check(self):
        """Raise one of `errors` if something went wrong that no call could report."""
        self._communicator.check_async_error()

    def abort(self):
        """End what goes on, also where others are missing."""
        if self.connected:
            self._communicator.abort()

    def close(self):
        if self.connected:
            self._communicator.destroy()


def _codes(array, op):
    return getattr(nccl, f"NCCL_{TYPES[array.dtype.char]}"), getattr(nccl, f"NCCL_{OPS[op]}")
