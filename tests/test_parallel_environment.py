"""Discovery: every launcher's variables, and those that only look like a launcher's."""

import pytest

from minigrad.errors import ShapeError
from minigrad.parallel.environment import Launch, discover, hosts_of

MASTER = {"MASTER_ADDR": "head", "MASTER_PORT": "4000"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
ALLOCATION = {  # what salloc's shell and a batch script have
    "SLURM_JOB_ID": "8007",
    "SLURM_JOB_NODELIST": "gpu[003-004],login1",
    "SLURM_NNODES": "3",
    "SLURM_NTASKS": "5",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
}
BATCH = ALLOCATION | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
STEP = ALLOCATION | {
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NODELIST": "gpu[003-004],login1",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
}
KUBERNETES = {"JOB_COMPLETION_INDEX": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "job-0.job"}
SINGLE = Launch(0, 1, 0, 1, "127.0.0.1", 29500, "single")

FOUND = {
    "torchrun": (
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", **MASTER},
        Launch(3, 4, 1, 2, "head", 4000, "environment"),
    ),
    "without an address": (
        {"RANK": "1", "WORLD_SIZE": "2"},
        Launch(1, 2, 0, 1, "127.0.0.1", 29500, "environment"),
    ),
    "local rank alone": (
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "2"},
        Launch(3, 4, 2, 3, "127.0.0.1", 29500, "environment"),
    ),
    "one rank": ({"RANK": "0", "WORLD_SIZE": "1"}, Launch(0, 1, 0, 1, "127.0.0.1", 29500, "environment")),
    "a platform's variables of nodes": (
        {"RANK": "1", "WORLD_SIZE": "2", "NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "8", **MASTER},
        Launch(1, 2, 0, 1, "head", 4000, "environment"),
    ),
    "our variables before MPI's": (
        OPENMPI | {"RANK": "0", "WORLD_SIZE": "1"},
        Launch(0, 1, 0, 1, "127.0.0.1", 29500, "environment"),
    ),
    "Open MPI": (OPENMPI, Launch(5, 8, 1, 4, "127.0.0.1", 29500, "openmpi")),
    "Open MPI, with an address": (OPENMPI | MASTER, Launch(5, 8, 1, 4, "head", 4000, "openmpi")),
    "MPICH": (MPICH, Launch(2, 4, 0, 2, "127.0.0.1", 29500, "mpich")),
    "MPICH without local ranks": ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Launch(1, 2, 0, 1, "127.0.0.1", 29500, "mpich")),
    "MPICH started in an allocation": (ALLOCATION | MPICH, Launch(2, 4, 0, 2, "127.0.0.1", 29500, "mpich")),
    "MPICH started in a step": (STEP | MPICH, Launch(2, 4, 0, 2, "127.0.0.1", 29500, "mpich")),
    "srun": (STEP, Launch(3, 5, 1, 2, "gpu003", 20008, "slurm")),
    "srun that speaks PMI": (STEP | {"PMI_RANK": "3", "PMI_SIZE": "5"}, Launch(3, 5, 1, 2, "gpu003", 20008, "slurm")),
    "srun with the older name": (
        {name: value for name, value in STEP.items() if name != "SLURM_STEP_ID"} | {"SLURM_STEPID": "1"},
        Launch(3, 5, 1, 2, "gpu003", 20008, "slurm"),
    ),
    "srun with fewer tasks than the allocation": (
        STEP
        | {
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_TASKS_PER_NODE": "2",
            "SLURM_STEP_NODELIST": "gpu004",
            "SLURM_PROCID": "1",
            "SLURM_NODEID": "0",
        },
        Launch(1, 2, 1, 2, "gpu004", 20008, "slurm"),
    ),
    "srun with a large job id": (STEP | {"SLURM_JOB_ID": "47000019"}, Launch(3, 5, 1, 2, "gpu003", 12020, "slurm")),
    "srun, with an address": (STEP | MASTER, Launch(3, 5, 1, 2, "head", 4000, "slurm")),
    "the shell of salloc": (ALLOCATION, SINGLE),
    "a batch script": (BATCH, SINGLE),
    "an interactive step": (BATCH | {"SLURM_STEP_ID": "4294967290"}, SINGLE),
    "Kubernetes": (KUBERNETES, Launch(3, 4, 0, 1, "job-0.job", 29500, "kubernetes")),
    "Kubernetes, one pod": (
        {"JOB_COMPLETION_INDEX": "0", "WORLD_SIZE": "1"},
        Launch(0, 1, 0, 1, "127.0.0.1", 29500, "kubernetes"),
    ),
    "an indexed Job that is no parallel training": ({"JOB_COMPLETION_INDEX": "3"}, SINGLE),
    "nothing": ({}, SINGLE),
    "empty values": ({"RANK": "", "WORLD_SIZE": ""}, SINGLE),
    "a size of one alone": ({"WORLD_SIZE": "1"}, SINGLE),
    "an address alone": (MASTER, SINGLE),
}


@pytest.mark.parametrize("environ, launch", FOUND.values(), ids=FOUND)
def test_found(environ, launch):
    assert discover(environ) == launch


REFUSED = {
    "rank of the size": ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK is 4, but WORLD_SIZE is 4"),
    "text": ({"RANK": "one", "WORLD_SIZE": "4"}, "RANK is 'one'"),
    "negative": ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK is '-1'"),
    "a size of zero": ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
    "a fraction": ({"RANK": "0", "WORLD_SIZE": "2.0"}, "WORLD_SIZE is '2.0'"),
    "local rank": (
        {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"},
        "LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2",
    ),
    "port": ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
    "port of zero": ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "0"}, "MASTER_PORT is '0'"),
    "high port": ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "65536"}, "MASTER_PORT is 65536"),
    "Open MPI": (OPENMPI | {"OMPI_COMM_WORLD_RANK": "8"}, "OMPI_COMM_WORLD_RANK is 8, but OMPI_COMM_WORLD_SIZE is 8"),
    "Open MPI, local": (OPENMPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "x"}, "OMPI_COMM_WORLD_LOCAL_RANK is 'x'"),
    "MPICH": (MPICH | {"PMI_SIZE": "two"}, "PMI_SIZE is 'two'"),
    "MPICH, local": (MPICH | {"MPI_LOCALNRANKS": "0"}, "MPI_LOCALNRANKS is '0'"),
    "Slurm": (STEP | {"SLURM_PROCID": "5"}, "SLURM_PROCID is 5, but SLURM_NTASKS is 5"),
    "Slurm, step": (STEP | {"SLURM_STEP_ID": "first"}, "SLURM_STEP_ID is 'first'"),
    "Slurm, nodes": (STEP | {"SLURM_STEP_NODELIST": "gpu[3-"}, "'gpu\\[3-' is no node list"),
    "Slurm, tasks": (STEP | {"SLURM_TASKS_PER_NODE": "2x2"}, "SLURM_TASKS_PER_NODE is '2x2'"),
    "Slurm, node": (STEP | {"SLURM_NODEID": "3"}, "SLURM_NODEID is 3"),
    "Kubernetes": (KUBERNETES | {"JOB_COMPLETION_INDEX": "4"}, "JOB_COMPLETION_INDEX is 4, but WORLD_SIZE is 4"),
    "Kubernetes without an address": ({"JOB_COMPLETION_INDEX": "0", "WORLD_SIZE": "4"}, "MASTER_ADDR is not set"),
    "rank without size": ({"RANK": "0"}, "RANK is '0', but WORLD_SIZE is not set"),
    "size without rank": ({"WORLD_SIZE": "4"}, "WORLD_SIZE is '4', but RANK is not set"),
    "size that is no number": ({"WORLD_SIZE": "all"}, "WORLD_SIZE is 'all'"),
    "half of Open MPI's": ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not set"),
    "half of MPICH's": ({"PMI_SIZE": "2"}, "PMI_RANK is not set"),
}


@pytest.mark.parametrize("environ, words", REFUSED.values(), ids=REFUSED)
def test_refused(environ, words):
    with pytest.raises(ShapeError, match=words):
        discover(environ)


LISTS = {
    "login1": ["login1"],
    "a,b": ["a", "b"],
    "gpu[003-006,9],login1": ["gpu003", "gpu004", "gpu005", "gpu006", "gpu9", "login1"],
    "gpu[098-101]": ["gpu098", "gpu099", "gpu100", "gpu101"],
    "n[1-2]-ib": ["n1-ib", "n2-ib"],
    "r[1-2]n[08-09]": ["r1n08", "r1n09", "r2n08", "r2n09"],
    "gpu[7]": ["gpu7"],
}


@pytest.mark.parametrize("nodes", LISTS)
def test_hosts_of_a_node_list(nodes):
    assert hosts_of(nodes) == LISTS[nodes]


@pytest.mark.parametrize("nodes", ["", ",", "a,,b", "gpu[3-", "gpu3]", "gpu[]", "gpu[5-3]", "gpu[a-b]", "gpu[1-2"])
def test_what_is_no_node_list(nodes):
    with pytest.raises(ShapeError, match="node list"):
        hosts_of(nodes)


def test_the_environment_of_the_process_is_the_default(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, {"RANK": "1", "WORLD_SIZE": "3"}[name])
    assert (discover().rank, discover().size) == (1, 3)
