"""The CPU benchmark: all contenders train the same task, slow and noisy steps and failures are told apart."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, models, nn, no_grad

from . import cpu, rounds, tasks

SCRIPT = Path(cpu.__file__)


def sorted_shapes(network):
    return sorted(tuple(parameter.shape) for parameter in network.parameters())


@pytest.mark.parametrize("model", tasks.LAYERS)
def test_layers_are_those_of_the_networks(model):
    task = tasks.named(model)
    network = models.build(model, task.shape)
    same = tasks.built(nn, task.layers)
    assert sorted_shapes(same) == sorted_shapes(network)
    network.eval(), same.eval()
    for one, other in zip(same.parameters(), network.parameters(), strict=True):
        other.array[...] = one.array
    x = Tensor(np.random.default_rng(0).standard_normal((2, *task.shape), dtype=np.float32))
    with no_grad():
        np.testing.assert_allclose(same(x).array, network(x).array, rtol=1e-4, atol=1e-5)


def test_networks_drawn_at_random_follow_from_their_seed():
    kinds = set()
    for seed in range(100):
        task = tasks.drawn(seed)
        assert task == tasks.drawn(seed) and 2 <= sum(layer[0] == "conv" for layer in task.layers) <= 4
        kinds |= {layer[0] for layer in task.layers} | {task.optimizer}
    assert kinds == {"conv", "norm", "relu", "pool", "dropout", "flatten", "linear", "Adam", "SGD"}


def test_the_median_is_of_clean_steps():
    clean, disturbed = [[0.010, 0.0]] * 4, [[0.050, 0.002]] * 9
    assert rounds.summary(clean + disturbed) == {"ms": 10.0, "steps": 13, "clean": 4}
    assert rounds.summary(clean[:2] + disturbed) == {"ms": 50.0, "steps": 11, "clean": 2}
    assert rounds.summary([[0.010, None], [0.020, None], [0.030, None]]) == {"ms": 20.0, "steps": 3, "clean": 3}


def test_ratios_are_of_pytorch_as_it_comes_and_at_its_best():
    times = {"minigrad": 2, "torch": 8, "torch nchw": 6, "torch nhwc": 5, "jax": 1}
    sets = [{name: [[[ms / 1000, 0.0]] * 3] for name, ms in times.items()}]
    row = cpu.figures(sets, {"tinygrad": "not installed"})
    assert (row["ratio"], row["ratio_best"], row["best"]) == (4.0, 2.5, "torch nhwc")
    assert (row["ratio_sets"], row["ms"]["jax"], row["steps"]["torch"]) == ([4.0], 1.0, 3)
    assert row["not_run"] == {"tinygrad": "not installed"}
    assert "tinygrad not run: not installed" in cpu.told(row)


def test_a_machine_that_drifts_and_a_process_that_is_struck_leave_the_ratio_as_it_is():
    def turns(ms, speeds):
        return [[[ms / 1000 * speed, 0.0]] * 2 for speed in speeds]

    drifting = (1, 1, 2, 3, 1), (3, 2, 1, 1, 1), (1, 2, 2, 3, 1)
    sets = [{"minigrad": turns(2, speeds), "torch": turns(6, speeds)} for speeds in drifting]
    sets[1]["minigrad"] = turns(40, drifting[1])
    sets[2]["torch"][0] = []  # it sat out
    row = cpu.figures(sets, {})
    assert (row["ratio"], row["ratio_sets"]) == (3.0, [3.0, 0.15, 3.0])
    assert "ratio 3.0 (0.15 to 3.0)" in cpu.told(row)


def test_ratios_are_of_clean_steps_unless_there_are_too_few():
    clean, disturbed = [[1, 0], [9, 1], [9, 1]], [[90, 9]]
    sets = [{"minigrad": [clean] * 3 + [disturbed], "torch": [[[4, 0]]] * 4}, {"minigrad": [disturbed], "torch": [[]]}]
    assert rounds.paired(sets, "torch") == [[4.0] * 3]
    sets[0]["minigrad"][0] = disturbed
    assert rounds.paired(sets, "torch") == [[4 / 90, 4 / 9, 4 / 9, 4 / 90]]


def test_peak_memory_is_not_that_of_the_process_that_started_it():
    child = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import worker; print(worker.peak_megabytes())"
    parent = f"import subprocess, sys; held = b'x' * (500 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    assert 10 < float(done.stdout) < 300


@pytest.mark.parametrize("losses, finite, why", [((2.3, 2.2), True, "fall"), ((2.3, 0.1), False, "finite")])
def test_a_contender_that_skips_work_is_noticed(losses, finite, why):
    rounds.check_learning((2.3, 1.2), True)
    with pytest.raises(rounds.Failed, match=why):
        rounds.check_learning(losses, finite)


def test_a_worker_that_fails_says_why_and_one_that_is_silent_is_ended():
    task = tasks.named("lenet")
    with rounds.working({"no": lambda: rounds.Worker("no such contender", task, 2, 1, 30)}) as (workers, reasons):
        assert not workers and "no such contender" in reasons["no"]
    with rounds.working({"slow": lambda: rounds.Worker("minigrad", task, 2, 1, 0.05)}) as (workers, reasons):
        assert not workers and reasons["slow"] == "no answer within 0.05 s"


@pytest.mark.deep
def test_quick_mode_runs_all_parts():
    pytest.importorskip("torch")
    before = cpu.RESULTS.read_bytes()
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick", "--seed", "2", "--peers"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for line in ("lenet, batch 8, threads 1: minigrad", "random 2, threads 1", "random 3", "epoch: minigrad", "peak"):
        assert line in done.stdout, done.stdout
    assert cpu.RESULTS.read_bytes() == before
    refused = subprocess.run([sys.executable, SCRIPT, "--quick", "--write"], capture_output=True, text=True)
    assert refused.returncode == 2 and "--quick" in refused.stderr
