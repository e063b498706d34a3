"""The CPU benchmark: all contenders train the same task, slow and noisy steps are told apart, its workers end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, models, nn, no_grad

from .benchmarks import cpu, rounds, tasks, worker

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
        other.data[...] = one.data
    x = Tensor(np.random.default_rng(0).standard_normal((2, *task.shape), dtype=np.float32))
    with no_grad():
        np.testing.assert_allclose(same(x).data, network(x).data, rtol=1e-4, atol=1e-5)


def test_random_networks_are_within_bounds_and_follow_from_the_seed():
    kinds, strides, taps = set(), set(), set()
    for seed in range(200):
        task = tasks.drawn(seed)
        assert task == tasks.drawn(seed)
        channels, *sides = task.shape
        assert 3 <= channels <= 96 and all(5 <= side <= 40 for side in sides)
        convolutions = [layer for layer in task.layers if layer[0] == "conv"]
        assert 2 <= len(convolutions) <= 4
        assert all(3 <= filters <= 96 for _, _, filters, *_ in convolutions)
        strides |= {layer[4] for layer in convolutions}
        taps |= {layer[3] for layer in convolutions}
        kinds |= {layer[0] for layer in task.layers} | {task.optimizer}
    assert kinds == {"conv", "norm", "relu", "pool", "dropout", "flatten", "linear", "Adam", "SGD"}
    assert strides == {1, 2} and taps == set(range(1, 8))


@pytest.mark.parametrize("seed", range(3))
def test_random_networks_can_be_built(seed):
    task = tasks.drawn(seed)
    with no_grad():
        scores = tasks.built(nn, task.layers).eval()(Tensor(np.zeros((2, *task.shape), np.float32)))
    assert scores.shape == (2, tasks.CLASSES)


def test_data_can_be_learned_but_not_by_heart():
    images, labels = tasks.data((1, 4, 4), 4000, 2 * tasks.BATCHES)
    same = np.mean(labels[0] == labels[tasks.BATCHES])  # of the same images
    kept = 1 - tasks.RELABELLED * (1 - 1 / tasks.CLASSES)
    assert same == pytest.approx(kept**2 + (1 - kept) ** 2 / (tasks.CLASSES - 1), abs=0.05)
    assert len(images) == tasks.BATCHES and images[0].dtype == np.float32


def test_the_median_is_of_clean_steps():
    clean, disturbed = [[0.010, 0.0]] * 4, [[0.050, 0.002]] * 9
    assert rounds.summary(clean + disturbed) == {"ms": 10.0, "steps": 13, "clean": 4}
    assert rounds.summary(clean[:2] + disturbed) == {"ms": 50.0, "steps": 11, "clean": 2}
    assert rounds.summary([[0.010, None], [0.020, None], [0.030, None]]) == {"ms": 20.0, "steps": 3, "clean": 3}


def test_ratios_are_of_pytorch_as_it_comes_and_at_its_best():
    times = {"minigrad": 2, "torch": 8, "torch nchw": 6, "torch nhwc": 5, "jax": 1}
    row = cpu.figures({name: [[ms / 1000, 0.0]] * 3 for name, ms in times.items()}, {"tinygrad": "not installed"})
    assert (row["ratio"], row["ratio_best"], row["best"]) == (4.0, 2.5, "torch nhwc")
    assert row["not_run"] == {"tinygrad": "not installed"}
    assert "tinygrad not run: not installed" in cpu.told(row)


def test_a_contender_of_our_own_that_fails_is_no_row():
    with pytest.raises(SystemExit, match="torch: its loss does not fall"):
        cpu.figures({"minigrad": [[1, 0]]}, {"torch": "its loss does not fall"})


@pytest.mark.parametrize("losses, finite, why", [((2.3, 2.2), True, "fall"), ((2.3, 0.1), False, "finite")])
def test_a_contender_that_skips_work_is_noticed(losses, finite, why):
    rounds.check_learning((2.3, 1.2), True)
    with pytest.raises(rounds.Failed, match=why):
        rounds.check_learning(losses, finite)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system keeps no such figures")
def test_waiting_is_noticed():
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    allowed = os.sched_getaffinity(0)
    try:
        one = {min(allowed)}
        os.sched_setaffinity(0, one)
        for other in others:
            os.sched_setaffinity(other.pid, one)
        end = time.perf_counter() + 0.5

        def busy():
            while time.perf_counter() < end:
                pass

        _, seconds, waited = worker.measured(busy)
    finally:
        os.sched_setaffinity(0, allowed)
        for other in others:
            other.kill()
            other.wait()
    assert waited > rounds.WAITED * seconds


def test_a_worker_that_fails_says_why_and_one_that_is_silent_is_ended():
    task = tasks.named("lenet")
    with rounds.working({"no": lambda: rounds.Worker("no such contender", task, 2, 1, 30)}) as (workers, reasons):
        assert not workers and "no such contender" in reasons["no"]
    with rounds.working({"slow": lambda: rounds.Worker("minigrad", task, 2, 1, 0.05)}) as (workers, reasons):
        assert not workers and reasons["slow"] == "no answer within 0.05 s"


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


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_end_with_the_benchmark(number):
    pytest.importorskip("torch")
    command = [sys.executable, SCRIPT, "--parts", "steps", "--models", "lenet", "--threads", "1", "--peers"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while len(workers := children(process.pid)) < 4 and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    _, complaints = process.communicate(timeout=60)
    assert len(workers) == 4 and process.returncode == 1 and "interrupted" in complaints
    # One that was just being started is not known yet: it ends when nobody is left to ask it.
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_parts_are_stored_beside_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "RESULTS", tmp_path / "cpu.json")
    monkeypatch.setattr(sys, "argv", ["cpu.py", "--peers"])
    options = cpu.parsed()
    cpu.stored("steps", {"rows": []}, options)
    cpu.stored("epoch", {"rows": [1]}, options)
    found = json.loads(cpu.RESULTS.read_text())
    assert found["steps"]["rows"] == [] and found["epoch"]["rows"] == [1]
    assert found["steps"]["machine"]["numba"] and found["steps"]["machine"]["cpu"]


def test_epoch_takes_the_first_images_of_mnist(tmp_path, monkeypatch):
    import gzip

    folder = tmp_path / "mnist"
    folder.mkdir()
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (7, 28, 28)).astype(np.uint8), random.integers(0, 10, 7).astype(np.uint8)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + images.tobytes()))
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + labels.tobytes()))
    found, classes = tasks.epoch_data(tmp_path)
    assert (found[:, 0] == images).all() and (classes == labels).all()
    monkeypatch.delenv("MINIGRAD_DATA", raising=False)
    found, classes = tasks.epoch_data()
    assert found.shape == (tasks.EPOCH_IMAGES, 1, 28, 28) and found.dtype == np.uint8
