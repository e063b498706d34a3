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

from . import cpu, rounds, tasks, worker

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
    sets = [{name: [[[ms / 1000, 0.0]] * 3] for name, ms in times.items()}]
    row = cpu.figures(sets, {"tinygrad": "not installed"})
    assert (row["ratio"], row["ratio_best"], row["best"]) == (4.0, 2.5, "torch nhwc")
    assert (row["ratio_sets"], row["ms"]["jax"], row["steps"]["torch"]) == ([4.0], 1.0, 3)
    assert row["not_run"] == {"tinygrad": "not installed"}
    assert "tinygrad not run: not installed" in cpu.told(row)


def test_a_contender_of_our_own_that_fails_is_no_row():
    with pytest.raises(SystemExit, match="torch: its loss does not fall"):
        cpu.figures([{"minigrad": [[[1, 0]]]}], {"torch": "its loss does not fall"})


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


class Stand:
    """A worker whose steps have a length, but for the first behind those of another. `log` says who worked."""

    log = []

    def __init__(self, name, length):
        self.name, self.length, self.ready = name, length, {"parameters": 1}

    def answer(self):
        return self.ready

    def ask(self, what, count=0):
        if what == "end":
            return {"losses": [2, 1], "finite": True}
        cold = not self.log or self.log[-1] != self.name
        self.log.append(self.name)
        return [[self.length * (1 + (cold and not number)), 0.0] for number in range(count)]

    def stop(self):
        self.log.append(f"{self.name} ends")


@pytest.fixture
def stands(monkeypatch):
    """Starts of stand-ins by name, for given lengths of a step."""
    monkeypatch.setattr(rounds, "PAUSE", 0)
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(Stand, "log", [])

    def starts(**lengths):
        def begun(name, length):
            worker = Stand(name, length)
            worker.started = 0.0
            return worker

        return {name: lambda name=name, length=length: begun(name, length) for name, length in lengths.items()}

    return starts


def turns_of(starts, seconds, fewest):
    with rounds.working(starts) as (workers, reasons):
        return rounds.in_turn(workers, reasons, lambda count: ("steps", count), seconds, dict.fromkeys(starts, fewest))


def test_turns_are_short_and_their_first_step_does_not_count(stands):
    found = turns_of(stands(quick=0.01, slow=0.04, slowest=0.3), 0.35, 3)
    assert found["quick"] == [[[0.01, 0.0]] * 10] * 4 + [[]]
    assert [len(turn) for turn in found["slow"]] == [2] * 5
    assert found["slowest"] == [[[0.6, 0.0]]] * 3 + [[]] * 2, "long steps: every one counts, and so few that they end"
    assert len(found["quick"]) == len(found["slow"]), "turns at one place are of one round"


def test_steps_that_are_long_for_all_are_not_thrown_away(stands):
    assert turns_of(stands(one=1.0, other=2.0), 0.5, 1) == {"one": [[[2.0, 0.0]]], "other": [[[4.0, 0.0]]]}


def test_sets_have_processes_of_their_own_and_end_with_a_failure(stands):
    def measured(workers, reasons):
        return {name: [worker.ask("steps", 1)] for name, worker in workers.items()}

    sets, reasons = rounds.in_sets(stands(minigrad=1, jax=1), measured, 3, once=["jax"])
    assert [list(one) for one in sets] == [["minigrad", "jax"], ["minigrad"], ["minigrad"]] and not reasons
    assert Stand.log.count("minigrad ends") == 3

    def failing(workers, reasons):
        rounds.drop("minigrad", "a reason", workers, reasons)
        return {}

    sets, reasons = rounds.in_sets(stands(minigrad=1), failing, 3)
    assert sets == [{}] and reasons == {"minigrad": "a reason"}


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
