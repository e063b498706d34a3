"""How many ranks were started together, as the program that started them says in environment variables."""

import os

from minigrad_kernels.errors import ShapeError

__all__ = ["ranks_started"]

# Rank and number of ranks, by mpiexec of Open MPI, and by mpiexec of MPICH and Intel MPI.
MPIEXEC = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")
SLURM = "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
SLURM_NO_STEP = 0xFFFFFFF0  # from here on the number of a step means a batch script or an interactive shell


def ranks_started(environ=os.environ):
    """(how many ranks were started together, by what); 1 and None for a program that was started alone.

    Errors  ValueError for variables of a launcher that does not speak MPI, and for a number that is none
    """
    for rank, size in MPIEXEC:
        if environ.get(rank) and environ.get(size):
            return _number(environ, size), "mpiexec"
    rank, sizes = SLURM
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID")
    if step and _number(environ, "SLURM_STEP_ID", step) < SLURM_NO_STEP and environ.get(rank):
        size = next((name for name in sizes if environ.get(name)), None)
        return (1 if size is None else _number(environ, size)), "srun"
    if environ.get("RANK") and _number(environ, "WORLD_SIZE") > 1:
        raise ShapeError(
            f"init: WORLD_SIZE is {environ['WORLD_SIZE']}, but ranks are started by mpiexec, srun or `minigrad launch`"
            "; take one of these, or unset RANK and WORLD_SIZE"
        )
    return 1, None


def _number(environ, name, text=None):
    text = environ.get(name, "1") if text is None else text
    if not text.isascii() or not text.isdigit() or not int(text) and name != "SLURM_STEP_ID":
        raise ShapeError(f"init: {name} is {text!r}, wanted a number of at least 1")
    return int(text)
