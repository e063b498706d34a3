"""The CPU benchmark: all contenders train the same task, slow and noisy steps and failures are told apart."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, models, nn, no_grad

from . import cpu, precision, tasks

SCRIPT = Path(cpu.__file__)


@pytest.mark.parametrize("model", tasks.LAYERS)
def test_layers_are_those_of_the_networks(model):
    task = tasks.named(model)
    network, same = models.build(model, task.shape).eval(), tasks.built(nn, task.layers).eval()
    for one, other in zip(same.parameters(), network.parameters(), strict=True):
        other.array[...] = one.array
    x = Tensor(np.random.default_rng(0).standard_normal((2, *task.shape), dtype=np.float32))
    with no_grad():
        np.testing.assert_allclose(same(x).array, network(x).array, rtol=1e-4, atol=1e-5)


def test_networks_drawn_at_random_follow_from_their_seed():
    drawn = [tasks.drawn(seed) for seed in range(100)]
    assert drawn == [tasks.drawn(seed) for seed in range(100)] and {one.optimizer for one in drawn} == {"Adam", "SGD"}
    kinds = {layer[0] for one in drawn for layer in one.layers}
    assert kinds == {"conv", "norm", "relu", "pool", "dropout", "flatten", "linear"}


def test_a_machine_that_drifts_and_a_process_that_is_struck_leave_the_ratio_as_it_is():
    drifting = (1, 1, 2, 3, 1), (3, 2, 1, 1, 1), (1, 2, 2, 3, 1)
    times = {"minigrad": 2, "torch": 6, "torch nchw": 8, "torch nhwc": 5, "jax": 1}
    sets = [{name: [[ms * speed / 1000] * 2 for speed in each] for name, ms in times.items()} for each in drifting]
    sets[1]["minigrad"] = [[0.04 * speed] for speed in drifting[1]]
    row = cpu.figures(sets, {"tinygrad": "not installed"})
    assert (row["ratio"], row["ratio_sets"], row["ratio_best"]) == (3.0, [3.0, 0.15, 3.0], 2.5)
    assert (row["best"], row["ms"]["jax"], row["steps"]["torch"]) == ("torch nhwc", 1.0, 30)
    assert "ratio 3.0 (0.15 to 3.0)" in cpu.told(row) and "tinygrad not run: not installed" in cpu.told(row)


def test_peak_memory_is_not_that_of_the_process_that_started_it():
    child = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import worker; print(worker.peak_megabytes())"
    parent = f"import subprocess, sys; held = b'x' * (500 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    assert 10 < float(done.stdout) < 300


def test_a_worker_that_fails_says_why_and_one_that_is_silent_is_ended():
    start = partial(cpu.starting, task=tasks.named("lenet"), size=2, threads=1)
    starts = {"tiny": start("minigrad", patience=0.05), "no": start("no such contender"), "slow": start("minigrad")}
    with cpu.Contenders(starts) as contenders:
        assert [*contenders] == ["slow"] and "no such contender" in contenders.reasons["no"]
        assert contenders.reasons["tiny"] == "no answer within 0.05 s"


def test_a_contender_that_skips_work_is_noticed_and_a_precision_that_costs_accuracy():
    import worker  # whose folder cpu.py put on the path

    worker.check_learning(2.3, 1.2)
    with pytest.raises(ValueError, match="does not fall: 2.3000 at first, nan"):
        worker.check_learning(2.3, float("nan"))
    exact = [98.0, 99.0]
    found = {"bfloat16": precision.summary([98.5, 99.5], exact), "float16": precision.summary([98.2, 98.0], exact)}
    assert precision.apart({"precisions": found}) == ["bfloat16"], "by more than twice the standard error"


@pytest.mark.deep
def test_the_starts_of_a_step_are_measured(capsys, monkeypatch):
    import launches

    monkeypatch.setattr(launches, "NETWORKS", {"lenet": (1, 28, 28)})
    monkeypatch.setattr(launches, "ROUNDS", 1)
    monkeypatch.setattr(sys, "argv", ["launches.py"])
    launches.main()
    assert {"conv2d_register_forward", "matmul_add", "optimizer_update_f32"} <= {*capsys.readouterr().out.split()}


@pytest.mark.deep
def test_quick_mode_runs_all_parts():
    pytest.importorskip("torch")
    before = cpu.RESULTS.read_bytes()
    command = [sys.executable, SCRIPT, "--quick", "--seed", "2", "--peers"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in ("lenet, batch 8, threads 1: minigrad", "random 2, threads 1", "random 3", "epoch: minigrad", "peak"):
        assert line in done.stdout, done.stdout
    assert cpu.RESULTS.read_bytes() == before
