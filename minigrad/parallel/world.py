"""init: the Communicator of all ranks, whoever started them."""

import atexit
import contextlib
import os
import sys
import traceback

from minigrad_kernels import toolchain
from minigrad_kernels.errors import ShapeError, StateError

from .communicator import Communicator, current
from .local import LocalTransport

TIMEOUT = 300.0  # seconds, unless MINIGRAD_TIMEOUT says another
START = 120.0  # seconds at least in which all ranks have to begin

# Rank and number of ranks, by mpiexec of Open MPI, and by mpiexec of MPICH and Intel MPI.
MPIEXEC = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")
SLURM = "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"
SLURM_NO_STEP = 0xFFFFFFF0  # from here on the number of a step means a batch script or an interactive shell


_made: Communicator | None = None


def init(timeout=None):
    """The world: a Communicator of all ranks that were started together; later calls give the same one.

    mpiexec, srun and `minigrad launch` start ranks, which then speak MPI; a program that was started alone is a world
    of one rank. Ranks on one host share its cores: from then on kernels use this rank's part of the cores, or those
    that the launcher bound it to; minigrad_kernels.toolchain.set_threads says otherwise.

    timeout seconds for an operation; default MINIGRAD_TIMEOUT, else 300: in the first steps each rank compiles kernels
    Errors  RuntimeError where MPI is missing or knows another number of ranks; ValueError for variables that make no
            sense

    A rank that ends by an exception ends the others too, each of which says why. So does, in a script that catches
    exceptions, one that leaves a block `with init() as world:`.
    """
    global _made
    seconds = _seconds((os.environ.get("MINIGRAD_TIMEOUT") or TIMEOUT) if timeout is None else timeout)
    if (world := current.get()) is not None or (world := _made) is not None:
        if world.closed and world.size > 1:
            raise StateError("init: the world was closed; a process can be in one only once")
        if not world.closed:
            return world
    ranks, starter = ranks_started()
    world = Communicator(_mpi(ranks, starter, seconds) if ranks > 1 else LocalTransport(), timeout=seconds)
    if world.size > 1:
        _share_cores(world.transport.local_size)
        _end_with_the_process(world)
    _made = world
    return world


def _mpi(ranks, starter, seconds):
    from .mpi import MpiTransport

    transport = MpiTransport(max(seconds, START))
    if starter and transport.size != ranks:
        told = f"init: {starter} started {ranks} ranks, but MPI knows {transport.size}"
        raise StateError(f"{told}; install mpi4py for the cluster's own MPI, and see `srun --mpi=list`")
    return transport


def _share_cores(ranks):
    """Use this rank's part of the cores of its host."""
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) == os.cpu_count():
        toolchain.set_threads(max(1, toolchain.threads() // ranks))


def _seconds(value):
    with contextlib.suppress(TypeError, ValueError):
        if (seconds := float(value)) > 0:
            return seconds
    raise ShapeError(f"init: the timeout (MINIGRAD_TIMEOUT) is {value!r}, wanted seconds above 0")


def _end_with_the_process(world):
    """Tell the other ranks where an exception ends this one."""
    before = sys.excepthook

    def told(kind, error, trace):
        if before is sys.__excepthook__:  # in one piece: the lines of all ranks arrive in one stream
            sys.stderr.write("".join(traceback.format_exception(error)))
        else:
            before(kind, error, trace)
        world.abort(f"{kind.__name__}: {error}")

    sys.excepthook = told
    atexit.register(world.close)


# ---- how many ranks were started, as what started them says in environment variables ---------------------------------


def ranks_started(environ=os.environ):
    """(how many ranks were started together, by what); 1 and None for a program that was started alone.

    Errors  ValueError for variables of a launcher that does not speak MPI
    """
    for rank, size in MPIEXEC:
        if environ.get(rank) and environ.get(size):
            return int(environ[size]), "mpiexec"
    step, _, size = SLURM
    if all(environ.get(name) for name in SLURM) and int(environ[step]) < SLURM_NO_STEP:
        return int(environ[size]), "srun"
    if environ.get("RANK") and int(environ.get("WORLD_SIZE", 1)) > 1:
        told = f"WORLD_SIZE is {environ['WORLD_SIZE']}, but ranks are started by mpiexec, srun or `minigrad launch`"
        raise ShapeError(f"init: {told}; take one of these, or unset RANK and WORLD_SIZE")
    return 1, None
