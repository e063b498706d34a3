"""init: the Communicator of all ranks, whoever started them."""

import atexit
import os
import sys

from minigrad_kernels import toolchain
from minigrad_kernels.errors import ShapeError, StateError

from .communicator import Communicator, current
from .environment import discover
from .errors import CommunicationError
from .local import LocalTransport
from .transport import FAILED, deadline_after

__all__ = ["init"]

BACKEND_OF = {"single": "local", "openmpi": "mpi", "mpich": "mpi"}  # by the launcher; tcp for all others
BACKENDS = ("local", "mpi", "tcp")
TIMEOUT = 120.0  # seconds, unless MINIGRAD_TIMEOUT says another; kernels may have to be compiled meanwhile
PROTOCOL = b"minigrad parallel 1"

_made: Communicator | None = None


def init(backend=None, timeout=None):
    """The world: a Communicator of all ranks that were started together; later calls give the same one.

    Under mpiexec it speaks MPI; under `minigrad launch`, torchrun, srun and in a Kubernetes Job TCP; alone it is a
    world of one rank. Over TCP ranks prove to each other that they know MINIGRAD_KEY. `minigrad launch` makes one up;
    give one to other launchers where strangers could reach the ports. Ranks on one host share its cores: from then on
    each uses MINIGRAD_THREADS threads for kernels, else its part of the cores, or those that the launcher bound it to.

    backend     "mpi", "tcp" or "local" (one rank) instead
    timeout     seconds for an operation, and for the ranks to find one another; default MINIGRAD_TIMEOUT, else 120
    Errors      DeadlineError naming the ranks that did not come; WrongKey; ValueError for variables that make no sense

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
    found = discover()
    transport = _transport(backend or BACKEND_OF.get(found.launcher, "tcp"), found, seconds)
    world = Communicator(transport, timeout=seconds)
    if transport.size > 1:
        _share_cores(found.local_size)
        _end_with_the_process(world)
    _made = world
    return world


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


def _transport(backend, found, seconds):
    if backend == "local":
        return LocalTransport()
    from .launch.watch import watch

    watch()
    if backend == "mpi":
        from .mpi import MpiTransport

        return MpiTransport(seconds)
    from .rendezvous import meet
    from .tcp import TcpTransport

    place = found.address, found.port
    # Without a secret of its own a job has a name, which keeps it apart from others but not from who wants to join.
    key = os.environ.get("MINIGRAD_KEY") or f"minigrad, {found.size} ranks at {place}"
    return TcpTransport(meet(found.rank, found.size, *place, key.encode(), deadline_after(seconds), PROTOCOL))


def _end_with_the_process(world):
    """Tell the other ranks where an exception ends this one; and whoever started it where it was not its own fault."""
    before = sys.excepthook

    def told(kind, error, trace):
        before(kind, error, trace)
        world.abort(f"{kind.__name__}: {error}")
        if issubclass(kind, CommunicationError) and world.transport.name != "MPI":
            world.close()
            sys.stdout.flush()
            os._exit(FAILED)

    sys.excepthook = told
    atexit.register(world.close)
