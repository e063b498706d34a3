"""What is refused is said once, by the rank that knows, and is not tried again."""

import sys

import pytest

from .launch_runs import launch, script
from .test_parallel_recovery import finished, started

pytestmark = pytest.mark.deep

TRAIN = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--no-new-writers", "--limit", "100"]


def test_a_refusal_of_rank_0_is_printed_once_and_not_tried_again(tmp_path):
    how = ["-m", "minigrad", "launch", "-n", 2, "--logs", tmp_path / "logs", "minigrad"]
    code, out, err = finished(started(*how, *TRAIN, "--shards", "3", "--out", tmp_path / "run"))
    assert code == 2 and "it would refuse again" in err and "starting again" not in err
    assert err.count("shards is 3, wanted a multiple of the 2 ranks") == 1 and not (tmp_path / "run").exists()


def test_what_only_another_rank_cannot_do_is_in_its_log(tmp_path):
    body = """
if rank:
    from minigrad.cli import settings
    def nothing(*arguments, **options):
        raise settings.UsageError("no data on this host")
    settings.Settings.datasets = nothing
from minigrad.cli import main
"""
    words = [*TRAIN, "--out", str(tmp_path / "run")]
    command = script(tmp_path, f"{body}\nsys.exit(main({words!r}))\n")
    code, _, err = launch(tmp_path, "-n", 2, "--timeout", 20, "--max-restarts", 0, *command)
    assert code in (1, 2) and "no data on this host" in err, err


def test_a_program_that_refuses_its_arguments_is_not_started_again(tmp_path):
    code, _, err = launch(tmp_path, "-n", 2, *script(tmp_path, "sys.exit(2)\n"))
    assert code == 2 and "it would refuse again" in err and sys.executable not in err


@pytest.mark.deep
def test_a_job_that_is_started_again_leaves_the_run_of_another_alone(tmp_path):
    out = tmp_path / "run"
    code, _, err = finished(started("-m", "minigrad", *TRAIN, "--out", out))
    assert code == 0, err
    body = f"""
if attempt == 0:
    sys.exit(3)
from minigrad.cli import main
sys.exit(main({[*TRAIN, "--out", str(out)]!r}))
"""
    code, _, err = launch(tmp_path, "-n", 2, *script(tmp_path, body))
    assert code == 2 and "holds a run already" in err, err
