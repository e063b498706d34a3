"""init: the Communicator of all ranks, whoever started them."""

import atexit
import os
import sys

from minigrad_kernels import toolchain
from minigrad_kernels.errors import ShapeError, StateError

from .communicator import Communicator, current
from .environment import ranks_started
from .local import LocalTransport

__all__ = ["init"]

BACKENDS = "local", "mpi"
TIMEOUT = 30.0  # seconds, unless MINIGRAD_TIMEOUT says another
START = 120.0  # seconds at least in which all ranks have to begin

_made: Communicator | None = None


def init(backend=None, timeout=None):
    """The world: a Communicator of all ranks that were started together; later calls give the same one.

    mpiexec, srun and `minigrad launch` start ranks, which then speak MPI; a program that was started alone is a world
    of one rank. Ranks on one host share its cores: from then on each uses MINIGRAD_THREADS threads for kernels, else
    its part of the cores, or those that the launcher bound it to.

    backend     "mpi" or "local" (one rank) instead
    timeout     seconds for an operation; default MINIGRAD_TIMEOUT, else 30, and 600 until DataParallel has made two
                steps, as each rank compiles kernels meanwhile
    Errors      DeadlineError naming the ranks that did not come; RuntimeError where MPI is missing or knows another
                number of ranks; ValueError for variables that make no sense

    A rank that ends by an exception ends the others too, each of which says why. So does, in a script that catches
    exceptions, one that leaves a block `with init() as world:`.
    """
    global _made
    if backend not in (*BACKENDS, None):
        raise ShapeError(f"init: backend is {backend!r}, wanted one of {', '.join(map(repr, BACKENDS))}")
    seconds = _seconds((os.environ.get("MINIGRAD_TIMEOUT") or TIMEOUT) if timeout is None else timeout)
    if (world := current.get()) is not None or (world := _made) is not None:
        if world.closed and world.size > 1:
            raise StateError("init: the world was closed; a process can be in one only once")
        if not world.closed:
            return world
    ranks, starter = ranks_started()
    by_mpi = backend == "mpi" or backend is None and ranks > 1
    world = Communicator(_mpi(ranks, starter, seconds) if by_mpi else LocalTransport(), timeout=seconds)
    world.transport.young = by_mpi and timeout is None
    if world.size > 1:
        _share_cores(world.transport.local_size)
        _end_with_the_process(world)
    _made = world
    return world


def _mpi(ranks, starter, seconds):
    from .mpi import MpiTransport

    transport = MpiTransport(max(seconds, START))
    if starter and transport.size != ranks:
        raise StateError(
            f"init: {starter} started {ranks} ranks, but MPI knows {transport.size}; mpi4py wants the MPI of that "
            f"{starter}: see `srun --mpi=list`, and install mpi4py for the cluster's own MPI"
        )
    return transport


def _share_cores(ranks):
    """Use this rank's part of the cores of its host."""
    threads = os.environ.get("MINIGRAD_THREADS")
    if threads and threads.isdigit() and int(threads):
        toolchain.set_threads(min(int(threads), toolchain.threads()))
    elif not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) == os.cpu_count():
        toolchain.set_threads(max(1, toolchain.threads() // ranks))


def _seconds(value):
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not seconds > 0:
        raise ShapeError(f"init: the timeout (MINIGRAD_TIMEOUT) is {value!r}, wanted seconds above 0")
    return seconds


def _end_with_the_process(world):
    """Tell the other ranks where an exception ends this one."""
    before = sys.excepthook

    def told(kind, error, trace):
        before(kind, error, trace)
        world.abort(f"{kind.__name__}: {error}")

    sys.excepthook = told
    atexit.register(world.close)
