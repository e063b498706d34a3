"""Which rank this process is: what each launcher says in its environment variables, read in one place.

A launcher starts the same program many times and tells each copy its number. The first row of the table that holds
counts; a program that was started by nobody is a job of one rank.

    launcher      variables
    environment   RANK and WORLD_SIZE: torchrun, Kubeflow, `minigrad launch`
    openmpi       OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE: Open MPI's mpiexec
    mpich         PMI_RANK and PMI_SIZE: mpiexec of MPICH and of Intel MPI
    slurm         SLURM_PROCID and SLURM_NTASKS within a step of srun; a batch script and the shell of an allocation
                  have some of the same variables, and are one process
    kubernetes    JOB_COMPLETION_INDEX of an indexed Job; WORLD_SIZE and MASTER_ADDR, which its manifest must set
"""

import os
import re
from dataclasses import dataclass

from minigrad_kernels.errors import ShapeError

__all__ = ["Launch", "discover", "hosts_of"]

ADDRESS, PORT = "127.0.0.1", 29500  # where nobody said where rank 0 listens
NAMES = {  # of rank, size, rank on the host, ranks of the host
    "environment": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "openmpi": tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}
SLURM_PORTS = 12000, 20000  # the first, and how many: below those that systems hand out to clients
SLURM_NO_STEP = 0xFFFFFFF0  # from here on the numbers of steps mean batch scripts and interactive shells


@dataclass(frozen=True)
class Launch:
    """What a process knows of the job it belongs to.

    local_rank, local_size  its number among the ranks of its host, and how many those are
    address, port           where rank 0 listens
    launcher                "environment", "openmpi", "mpich", "slurm", "kubernetes" or "single"
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    launcher: str


def discover(environ=os.environ):
    """The Launch of this process.

    Some platforms set RANK and WORLD_SIZE for nodes, not for processes: then one process a node is what they mean.
    Errors  ShapeError that names the variable, if its value is no number, is out of range, or its partner is missing
    """
    variables = _Variables(environ)
    for launcher, read in READERS.items():
        found = read(variables)
        if found is not None:
            return _checked(variables, launcher, **found)
    variables.refuse_halves()
    return Launch(0, 1, 0, 1, ADDRESS, PORT, "single")


class _Variables:
    """Environment variables of which an empty one counts as none."""

    def __init__(self, environ):
        self.environ = environ

    def have(self, *names):
        return all(self.environ.get(name) for name in names)

    def text(self, *names):
        """The first of these that is set, else None."""
        return next((self.environ[name] for name in names if self.environ.get(name)), None)

    def number(self, *names, default=None, least=0):
        """The first of these that is set, as an integer of at least `least`."""
        name = next((name for name in names if self.environ.get(name)), None)
        if name is None:
            return default
        value = self.environ[name]
        if not re.fullmatch(r"\s*[0-9]+\s*", value, re.ASCII) or int(value) < least:
            raise ShapeError(f"discover: {name} is {value!r}, want an integer of at least {least}")
        return int(value)

    def refuse_halves(self):
        """A rank without a size, or the reverse, is a mistake that would train many times the same alone."""
        for rank, size, *_ in NAMES.values():
            if self.have(rank):
                raise ShapeError(f"discover: {rank} is {self.text(rank)!r}, but {size} is not set; set both or none")
            if self.have(size) and self.number(size, least=1) > 1:
                raise ShapeError(f"discover: {size} is {self.text(size)!r}, but {rank} is not set; set both or none")


def _named(variables, launcher):
    """What a launcher that names all four numbers says; None if it did not start this process."""
    rank, size, local_rank, local_size = NAMES[launcher]
    if not variables.have(rank, size):
        return None
    number = variables.number(local_rank, default=0)
    return {
        "rank": (rank, variables.number(rank)),
        "size": (size, variables.number(size, least=1)),
        "local_rank": (local_rank, number),
        "local_size": (local_size, variables.number(local_size, default=number + 1, least=1)),
    }


def _mpich(variables):
    if _step(variables) is not None and not variables.have("MPI_LOCALRANKID"):
        return None  # srun speaks PMI too, and it knows more
    return _named(variables, "mpich")


def _step(variables):
    """The number of the step of srun that this process is a task of."""
    step = variables.number("SLURM_STEP_ID", "SLURM_STEPID")
    return None if step is None or step >= SLURM_NO_STEP else step


def _slurm(variables):
    step = _step(variables)
    size = "SLURM_STEP_NUM_TASKS" if variables.have("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    if step is None or not variables.have("SLURM_PROCID", size):
        return None
    first, count = SLURM_PORTS
    number = variables.number("SLURM_LOCALID", default=0)
    nodes = variables.text("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    return {
        "rank": ("SLURM_PROCID", variables.number("SLURM_PROCID")),
        "size": (size, variables.number(size, least=1)),
        "local_rank": ("SLURM_LOCALID", number),
        "local_size": ("SLURM_TASKS_PER_NODE", _tasks_here(variables) or number + 1),
        "address": hosts_of(nodes)[0] if nodes else ADDRESS,
        "port": first + (variables.number("SLURM_JOB_ID", default=0) + step) % count,
    }


def _tasks_here(variables):
    """How many tasks of the step run on this host, from a list like 2(x3),1: two on each of three hosts, then one."""
    text = variables.text("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    if text is None:
        return None
    counts = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", part, re.ASCII)
        if match is None:
            raise ShapeError(f"discover: SLURM_TASKS_PER_NODE is {text!r}, want a list like 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    node = variables.number("SLURM_NODEID", default=0)
    if node >= len(counts):
        raise ShapeError(f"discover: SLURM_NODEID is {node}, but SLURM_TASKS_PER_NODE is {text!r}")
    return counts[node]


def _kubernetes(variables):
    if not variables.have("JOB_COMPLETION_INDEX", "WORLD_SIZE"):
        return None
    size = variables.number("WORLD_SIZE", least=1)
    if size > 1 and not variables.have("MASTER_ADDR"):
        hint = "set it in the manifest to the name of the pod with index 0"
        raise ShapeError(f"discover: WORLD_SIZE is {size}, but MASTER_ADDR is not set; {hint}")
    return {
        "rank": ("JOB_COMPLETION_INDEX", variables.number("JOB_COMPLETION_INDEX")),
        "size": ("WORLD_SIZE", size),
    }


READERS = {
    "environment": lambda variables: _named(variables, "environment"),
    "openmpi": lambda variables: _named(variables, "openmpi"),
    "mpich": _mpich,
    "slurm": _slurm,
    "kubernetes": _kubernetes,
}


def _checked(variables, launcher, rank, size, local_rank=("", 0), local_size=("", 1), address=ADDRESS, port=PORT):
    """The Launch of pairs (name of the variable, number), once they agree with one another."""
    for (name, number), (of, count) in ((rank, size), (local_rank, local_size)):
        if number >= count:
            raise ShapeError(f"discover: {name} is {number}, but {of} is {count}; ranks are counted from 0")
    address = variables.text("MASTER_ADDR") or address
    port = variables.number("MASTER_PORT", default=port, least=1)
    if variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # on MASTER_PORT itself torchrun's own store listens
    if port > 65535:
        raise ShapeError(f"discover: MASTER_PORT is {port}, want at most 65535")
    return Launch(rank[1], size[1], local_rank[1], local_size[1], address, port, launcher)


def hosts_of(nodes):
    """The names in a node list of Slurm: gpu[003-006,9],login1 are gpu003 to gpu006, gpu9 and login1.

    Errors  ShapeError if it is none
    """
    parts = re.findall(r"(?:[^,\[\]]+|\[[^\[\]]*\])+", nodes)
    if not parts or ",".join(parts) != nodes:
        raise ShapeError(f"discover: {nodes!r} is no node list of Slurm, want one like gpu[003-006,9],login1")
    return [host for part in parts for host in _expanded(part, nodes)]


def _expanded(name, nodes):
    """What a name with any number of ranges in brackets stands for; the last range runs fastest."""
    match = re.search(r"\[([^\]]*)\]", name)
    if match is None:
        return [name]
    middles = []
    for part in match[1].split(","):
        ends = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part, re.ASCII)
        if ends is None or int(ends[2] or ends[1]) < int(ends[1]):
            raise ShapeError(f"discover: {nodes!r} is no node list of Slurm: {part!r} is no range of numbers")
        middles += [f"{n:0{len(ends[1])}d}" for n in range(int(ends[1]), int(ends[2] or ends[1]) + 1)]
    return [
        name[: match.start()] + middle + rest for middle in middles for rest in _expanded(name[match.end() :], nodes)
    ]
