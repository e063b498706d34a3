"""Ranks on clusters: who started how many, and the scripts and manifests of examples/cluster, with stand-ins."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from minigrad.cli.arguments import parser
from minigrad.core.errors import MinigradError
from minigrad.parallel import init, mpi, world
from minigrad.parallel.local import LocalTransport
from minigrad.parallel.world import ranks_started
from tests.parallel.launch_runs import wait_for

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "cluster"
SLURM, JOB, MPI_JOB, README = (FOLDER / name for name in ("slurm.sbatch", "job.yaml", "mpijob.yaml", "README.md"))

# ---- how many ranks were started together ----------------------------------------------------------------------------

SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "16"}
STARTED = {
    "nobody": ({}, (1, None)),
    "mpiexec of MPICH": ({"PMI_RANK": "0", "PMI_SIZE": "4"}, (4, "mpiexec")),
    "mpiexec of Open MPI": ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (4, "mpiexec")),
    "mpiexec in a step of srun": (SRUN | {"PMI_RANK": "0", "PMI_SIZE": "2"}, (2, "mpiexec")),
    "srun": (SRUN, (8, "srun")),
    "a batch script": (SRUN | {"SLURM_STEP_ID": str(0xFFFFFFFB)}, (1, None)),
    "the shell of an allocation": ({"SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}, (1, None)),
    "torchrun with one rank": ({"RANK": "0", "WORLD_SIZE": "1"}, (1, None)),
}


def test_who_started_how_many():
    for name, (variables, found) in STARTED.items():
        assert ranks_started(variables) == found, name


def test_a_world_of_another_size_is_refused_and_the_timeout_is_that_of_the_launch(monkeypatch):
    """Else each of 8 tasks would train alone, and all would write into one folder."""
    monkeypatch.setattr(mpi, "MpiTransport", lambda seconds: LocalTransport())  # MPI that knows of no other ranks
    monkeypatch.setattr(world, "_made", None)
    with monkeypatch.context() as patch:
        for variable, value in SRUN.items():
            patch.setenv(variable, value)
        with pytest.raises(MinigradError, match="init: srun started 8 ranks, but MPI knows 1; .*srun --mpi=list"):
            init()
    for variable, seconds in (("", 300), ("7", 7)):  # of minigrad launch --timeout
        monkeypatch.setattr(world, "_made", None)
        monkeypatch.setenv("MINIGRAD_TIMEOUT", variable)
        assert init().timeout == init().host.timeout == seconds


def test_ranks_share_the_cores_of_their_host_unless_they_are_bound(monkeypatch):
    taken = []
    monkeypatch.setattr(world.toolchain, "threads", lambda: 8)
    monkeypatch.setattr(world.toolchain, "set_threads", taken.append)
    for free, ranks in ((8, 4), (8, 9), (2, 4)):
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, free=free: range(free), raising=False)
        world._share_cores(ranks)
    assert taken == [2, 1]


# ---- jobs ------------------------------------------------------------------------------------------------------------

STAND_INS = {
    "srun": '#!/bin/sh\nwhile [ "$1" != minigrad ]; do shift; done\nexec "$@"\n',
    "scontrol": '#!/bin/sh\necho "$@" >> calls\n',
    "minigrad": """#!/bin/sh
trap 'left=1' TERM
echo "$@" >> calls
while [ "$HOW" = waits ] && [ -z "$left" ]; do sleep 0.05; done
case "$HOW" in
    finishes) echo "{}" > result.json ;;
    [0-9]) exit "$HOW" ;;
esac
""",
}
ENDS = [  # what is started, how the command ends or with which code: the exit code, and how many commands there were
    (SLURM, "finishes", 0, 1),
    (SLURM, "leaves", 0, 2),
    (SLURM, "3", 3, 4),
    (SLURM, "2", 2, 1),
    (JOB, "waits", 75, 1),
    (JOB, "finishes", 0, 1),
]


@pytest.mark.parametrize("path, how, code, times", ENDS, ids=[f"{path.name} {how}" for path, how, *_ in ENDS])
def test_a_job_finishes_or_leaves_or_fails(tmp_path, path, how, code, times):
    """Left early it goes back into the queue, or ends with 75; failed Slurm tries it again, unless it was refused."""
    for name, text in STAND_INS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    command = ["bash", SLURM]
    if path is not SLURM:
        command = yaml.safe_load(path.read_text())["spec"]["template"]["spec"]["containers"][0]["command"]
    variables = {"DATA": "data", "RUN": str(tmp_path), "HOW": how, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    variables |= {"SLURM_JOB_ID": "4711", "SLURM_CPUS_PER_TASK": "8"}
    job = subprocess.Popen(command, env=variables, cwd=tmp_path, start_new_session=True)
    if how == "waits":
        assert wait_for((tmp_path / "calls").exists)
        time.sleep(0.2)
        job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == code
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == times and f"--out {tmp_path} --continue" in calls[0]
    assert how != "leaves" or calls[1] == "requeue 4711"


@pytest.mark.parametrize("path", [SLURM, JOB, MPI_JOB, README], ids=lambda path: path.name)
def test_commands_are_taken(path):
    """By minigrad's own parser; 8 stands for all variables, and this folder for that of the data."""
    text = re.sub(r"\$\w+|\$\{[^}]*\}", "8", path.read_text().replace("\\\n", ""))
    text = re.sub(r"--data-dir \S+", "--data-dir .", text)
    lines = re.findall(r"minigrad (?:launch .* minigrad )?train [^\n&`]*", text)
    assert lines and any("launch" in line for line in lines) == (path in (JOB, README))
    for line in lines:
        options = parser().parse_args(shlex.split(line)[1:])
        if options.command == "launch":
            options = parser().parse_args(options.words[1:])
        assert options.command == "train" and options.shards == 8 and options.continue_
