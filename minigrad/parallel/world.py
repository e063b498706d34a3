"""init: the Communicator of all ranks, whoever started them."""

import atexit
import os
import sys

from minigrad_kernels.errors import ShapeError

from .communicator import Communicator, current
from .environment import discover
from .local import LocalTransport
from .transport import deadline_after

__all__ = ["init"]

BACKENDS = ("mpi", "tcp", "local")
TIMEOUT = 60.0  # seconds, unless MINIGRAD_TIMEOUT says another
PROTOCOL = b"minigrad parallel 1"


def init(backend=None, timeout=None):
    """The world: a Communicator of all ranks that were started together; later calls give the same one.

    Under mpiexec it speaks MPI; under `minigrad launch`, torchrun, srun and in a Kubernetes Job TCP; alone it is a
    world of one rank.

    backend     "mpi", "tcp" or "local" (one rank) instead
    timeout     seconds for an operation, and for the ranks to find one another; default MINIGRAD_TIMEOUT, else 60
    Errors      DeadlineError naming the ranks that did not come; WrongKey; ValueError for variables that make no sense
    """
    if (world := current.get()) is not None or (world := _World.made) is not None:
        return world
    if backend not in (*BACKENDS, None):
        raise ShapeError(f"init: backend is {backend!r}, wanted one of {', '.join(map(repr, BACKENDS))}")
    found = discover()
    timeout = float(timeout or os.environ.get("MINIGRAD_TIMEOUT") or TIMEOUT)
    backend = backend or {"single": "local", "openmpi": "mpi", "mpich": "mpi"}.get(found.launcher, "tcp")
    if backend == "local":
        transport = LocalTransport()
    elif backend == "mpi":
        from .mpi import MpiTransport

        transport = MpiTransport()
    else:
        transport = _tcp(found, timeout)
    _World.made = Communicator(transport, timeout=timeout)
    _end_with_the_process(_World.made)
    return _World.made


class _World:
    made: Communicator | None = None


def _tcp(found, timeout):
    from .rendezvous import meet
    from .tcp import TcpTransport

    key = os.environ.get("MINIGRAD_KEY", "").encode()
    meeting = meet(found.rank, found.size, found.address, found.port, key, deadline_after(timeout), PROTOCOL)
    return TcpTransport(meeting)


def _end_with_the_process(world):
    """Let the other ranks know at once where an exception ends this one, which they would wait for in vain."""
    before = sys.excepthook

    def told(kind, error, trace):
        before(kind, error, trace)
        world.abort(f"{kind.__name__}: {error}")

    sys.excepthook = told
    atexit.register(world.close)
