"""How many ranks were started together, and that a world of another size is refused."""

import pytest
from minigrad.parallel.environment import ranks_started

from minigrad.core.errors import MinigradError
from minigrad.parallel import init, mpi, world

SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "16"}
STARTED = {
    "nobody": ({}, (1, None)),
    "mpiexec of MPICH": ({"PMI_RANK": "0", "PMI_SIZE": "4"}, (4, "mpiexec")),
    "mpiexec of Open MPI": ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (4, "mpiexec")),
    "mpiexec in a step of srun": (SRUN | {"PMI_RANK": "0", "PMI_SIZE": "2"}, (2, "mpiexec")),
    "srun": (SRUN, (8, "srun")),
    "srun, older": ({"SLURM_STEPID": "3", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, (2, "srun")),
    "a batch script": (SRUN | {"SLURM_STEP_ID": str(0xFFFFFFFB)}, (1, None)),
    "the shell of an allocation": ({"SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}, (1, None)),
    "torchrun with one rank": ({"RANK": "0", "WORLD_SIZE": "1"}, (1, None)),
}


@pytest.mark.parametrize("name", STARTED)
def test_who_started_how_many(name):
    variables, found = STARTED[name]
    assert ranks_started(variables) == found


class OneRank:
    """What MPI gives where it does not know of the ranks that srun started."""

    rank, size, local_rank, local_size, taken, name, backend = 0, 1, 0, 1, False, "MPI", "host"

    def __init__(self, seconds):
        pass


def test_a_world_of_another_size_than_was_started_is_refused(monkeypatch):
    """Else each of 8 tasks would train alone, and all would write into one folder."""
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(world, "_made", None)
    monkeypatch.setattr(mpi, "MpiTransport", OneRank)
    with pytest.raises(MinigradError, match="init: srun started 8 ranks, but MPI knows 1; .*srun --mpi=list"):
        init()
    assert world._made is None
