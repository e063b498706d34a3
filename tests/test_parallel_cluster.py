"""examples/cluster: the script for Slurm and the manifest for Kubernetes, as far as they can be checked here."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from minigrad.cli.arguments import parser
from minigrad.parallel.environment import discover
from tests.block_yaml import documents
from tests.launch_runs import wait_for

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "cluster"
SLURM, KUBERNETES, README = (FOLDER / name for name in ("slurm.sbatch", "kubernetes.yaml", "README.md"))
RANKS = 8  # of the script
KNOWN_OPTIONS = {  # of sbatch: what their values look like
    "job-name": r"\w+",
    "nodes": r"\d+",
    "ntasks-per-node": r"\d+",
    "cpus-per-task": r"\d+",
    "gpus-per-node": r"\d+",
    "time": r"\d\d:\d\d:\d\d",
    "output": r"[\w-]+%j\.log",
    "open-mode": r"append|truncate",
    "requeue": r"",
    "signal": r"(B:)?TERM@\d+",
}


def directives(text):
    """{option: value} of the lines with #SBATCH, also of those that are switched off by a second #."""
    found = re.findall(r"^##?SBATCH --([a-z-]+)(?:=(\S+))?$", text, re.MULTILINE)
    assert len(found) == len(re.findall("^##?SBATCH", text, re.MULTILINE))
    return dict(found)


def trainings(text):
    """The training commands of a text, in words; 8 stands for all variables."""
    lines = re.findall(r"minigrad train [^\n&`]*", text.replace("\\\n", ""))
    return [shlex.split(re.sub(r"\$\w+", "8", line)) for line in lines]


# ---- Slurm -----------------------------------------------------------------------------------------------------------


def test_the_script_is_bash():
    subprocess.run(["bash", "-n", SLURM], check=True, timeout=20)


def test_options_of_sbatch_are_known():
    options = directives(SLURM.read_text())
    for name, value in options.items():
        assert re.fullmatch(KNOWN_OPTIONS[name], value), name
    assert {"requeue", "signal"} <= set(options) and options["signal"].endswith("TERM@60")
    assert int(options["nodes"]) * int(options["ntasks-per-node"]) == RANKS
    before, _, after = SLURM.read_text().partition("\nset -u")
    assert "SBATCH" in before and "#SBATCH" not in after, "sbatch reads them before the first command alone"


def test_ranks_under_srun():
    options = directives(SLURM.read_text())
    tasks = int(options["ntasks-per-node"])
    shared = {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": str(RANKS),
        "SLURM_STEP_NUM_TASKS": str(RANKS),
        "SLURM_STEP_NODELIST": "node[07-08]",
        "SLURM_STEP_TASKS_PER_NODE": f"{tasks}(x{options['nodes']})",
        "SLURM_NTASKS_PER_NODE": str(tasks),
    }
    for rank in range(RANKS):
        node, local = divmod(rank, tasks)
        own = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(node)}
        found = discover(shared | own)
        assert (found.rank, found.size, found.local_rank, found.local_size) == (rank, RANKS, local, tasks)
        assert (found.address, found.port, found.launcher) == ("node07", 16711, "slurm")
    assert discover({name: value for name, value in shared.items() if "STEP" not in name}).size == 1


STAND_INS = {
    "srun": """#!/bin/sh
env > "$RUN/environment-$MINIGRAD_ATTEMPT"
while [ "$1" != minigrad ]; do shift; done
exec "$@"
""",
    "scontrol": """#!/bin/sh
echo "$@" > "$RUN/scontrol"
""",
    "sleep": """#!/bin/sh
""",
    "minigrad": """#!/bin/sh
echo "$@" >> "$RUN/calls"
echo $$ > "$RUN/pid"
trap 'left=1' TERM
if [ "$WAIT" ]; then
    n=0
    while [ -z "$left" ] && [ $n -lt 600 ]; do n=$((n + 1)); /bin/sleep 0.05; done
fi
if [ -e "$RUN/finishes" ]; then echo "{}" > "$RUN/result.json"; fi
exit "$(tail -n 1 "$RUN/code")"
""",
}


@pytest.fixture
def cluster(tmp_path):
    """Variables under which stand-ins for the programs of a cluster are found, and the folder of a run."""
    programs, run = tmp_path / "programs", tmp_path / "run"
    for folder in (programs, run):
        folder.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (run / "code").write_text("0\n")
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "DATA": str(tmp_path / "data"),
        "RUN": str(run),
        "DEVICE": "cpu",
        "WAIT": "",
        "THREADS": "8",
        "SLURM_JOB_ID": "4711",
        "SLURM_CPUS_PER_TASK": "8",
    }


def calls(variables):
    return (Path(variables["RUN"]) / "calls").read_text().splitlines()


def submit(variables):
    return subprocess.run(["bash", SLURM], env=variables, cwd=variables["RUN"], capture_output=True, timeout=60)


def test_a_job_that_finishes(cluster):
    run = Path(cluster["RUN"])
    (run / "finishes").touch()
    assert submit(cluster).returncode == 0
    assert len(calls(cluster)) == 1 and not (run / "scontrol").exists()
    lines = dict(line.split("=", 1) for line in (run / "environment-0").read_text().splitlines() if "=" in line)
    assert re.fullmatch("[0-9a-f]{64}", lines["MINIGRAD_KEY"])
    assert "--threads 8" in calls(cluster)[0] and f"--out {run} --continue" in calls(cluster)[0]


def test_a_job_that_leaves_goes_back_into_the_queue(cluster):
    assert submit(cluster).returncode == 0
    assert len(calls(cluster)) == 1
    assert (Path(cluster["RUN"]) / "scontrol").read_text() == "requeue 4711\n"


def test_a_job_that_fails_is_tried_again(cluster):
    run = Path(cluster["RUN"])
    (run / "code").write_text("3\n")
    assert submit(cluster).returncode == 3
    assert len(calls(cluster)) == 4 and not (run / "scontrol").exists()
    assert {path.name for path in run.glob("environment-*")} == {f"environment-{attempt}" for attempt in range(4)}


# ---- Kubernetes ------------------------------------------------------------------------------------------------------


def test_block_style_is_read():
    nested = 'a: 1\n# no\nb:\n  - c: "2"\n    d:\n      - x\n'
    text = nested + "      - |\n        # yes\n          y\n\n        z\n  - e: true\nf: g h\n"
    wanted = {"a": 1, "b": [{"c": "2", "d": ["x", "# yes\n  y\n\nz\n"]}, {"e": True}], "f": "g h"}
    assert documents(text + "---\nk: v\n") == [wanted, {"k": "v"}]


def manifest():
    """(service, job, pod, container) of the manifest."""
    service, job = documents(KUBERNETES.read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return service, job["spec"], pod, container


def variables_of(container):
    return {entry["name"]: entry.get("value") for entry in container["env"]}


KNOWN_FIELDS = {
    "service": {"clusterIP", "publishNotReadyAddresses", "selector"},
    "job": {
        "completionMode",
        "completions",
        "parallelism",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "podReplacementPolicy",
        "podFailurePolicy",
        "template",
    },
    "pod": {"restartPolicy", "subdomain", "terminationGracePeriodSeconds", "volumes", "containers"},
    "container": {"name", "image", "env", "resources", "volumeMounts", "command"},
}


def test_fields_of_the_manifest_are_known():
    service, job, pod, container = manifest()
    assert [(part["apiVersion"], part["kind"]) for part in documents(KUBERNETES.read_text())] == [
        ("v1", "Service"),
        ("batch/v1", "Job"),
    ]
    for name, part in (("service", service["spec"]), ("job", job), ("pod", pod), ("container", container)):
        assert set(part) == KNOWN_FIELDS[name]
    assert all(isinstance(value, str) for value in variables_of(container).values() if value is not None)


def test_pods_are_ranks_that_find_one_another():
    service, job, pod, container = manifest()
    _, named = documents(KUBERNETES.read_text())
    name = named["metadata"]["name"]
    assert job["completionMode"] == "Indexed" and job["completions"] == job["parallelism"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    variables = {key: value for key, value in variables_of(container).items() if value is not None}
    assert variables["MASTER_ADDR"] == f"{name}-0.{pod['subdomain']}"
    for rank in range(job["completions"]):
        found = discover(variables | {"JOB_COMPLETION_INDEX": str(rank)})
        assert (found.rank, found.size, found.local_rank, found.local_size) == (rank, job["completions"], 0, 1)
        assert (found.address, found.port, found.launcher) == (f"{name}-0.{pod['subdomain']}", 29500, "kubernetes")


def test_a_pod_that_is_disrupted_is_not_counted():
    _, job, pod, container = manifest()
    assert pod["restartPolicy"] == "Never", "what the policy of failures wants"
    assert pod["terminationGracePeriodSeconds"] >= 30
    disrupted, failed = job["podFailurePolicy"]["rules"]
    assert disrupted == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    assert failed["action"] == "Ignore" and failed["onExitCodes"]["values"] == [75]
    assert failed["onExitCodes"]["containerName"] == container["name"]


def run_pod(variables):
    command = manifest()[3]["command"]
    return subprocess.Popen(command, env=variables, cwd=variables["RUN"], start_new_session=True)


def test_a_pod_is_done_when_the_run_is(cluster):
    (Path(cluster["RUN"]) / "finishes").touch()
    assert run_pod(cluster).wait(timeout=30) == 0
    assert run_pod(cluster).wait(timeout=30) == 0 and len(calls(cluster)) == 1, "a finished run is not begun again"


def test_a_pod_that_leaves_is_not_done(cluster):
    run = Path(cluster["RUN"])
    pod = run_pod(cluster | {"WAIT": "1"})
    assert wait_for((run / "pid").exists)
    time.sleep(0.2)  # for the stand-in to be ready for the signal
    pod.send_signal(signal.SIGTERM)
    assert pod.wait(timeout=40) == 75 and len(calls(cluster)) == 1


def test_a_pod_that_fails_says_how(cluster):
    (Path(cluster["RUN"]) / "code").write_text("3\n")
    assert run_pod(cluster).wait(timeout=30) == 3


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [SLURM, KUBERNETES, README], ids=lambda path: path.name)
def test_training_commands_are_taken(path):
    found = trainings(path.read_text())
    assert found
    for words in found:
        options = parser().parse_args(words[1:])
        assert options.command == "train" and options.shards == 8 and options.data == "mnist", words


def test_launch_commands_are_taken():
    commands = re.findall(r"^    (minigrad launch .*)$", README.read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        options = parser().parse_args(shlex.split(command)[1:])
        assert options.command == "launch" and options.words[:2] == ["minigrad", "train"]


@pytest.mark.parametrize("path", [SLURM, KUBERNETES], ids=lambda path: path.name)
def test_commands_go_on_with_a_run(path):
    assert all("--continue" in words for words in trainings(path.read_text()))
