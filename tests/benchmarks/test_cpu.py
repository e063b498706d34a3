"""The benchmarks: all contenders train the same task, slow and noisy steps and failures are told apart."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, models, nn, no_grad

from . import cpu, curves, precision, tasks

FOLDER = Path(cpu.__file__).parent


@pytest.mark.parametrize("model", tasks.LAYERS)
def test_layers_are_those_of_the_networks(model):
    task = tasks.named(model)
    network, same = models.build(model, task.shape).eval(), tasks.built(nn, task.layers).eval()
    for one, other in zip(same.parameters(), network.parameters(), strict=True):
        other.array[...] = one.array
    x = Tensor(np.random.default_rng(0).standard_normal((2, *task.shape), dtype=np.float32))
    with no_grad():
        np.testing.assert_allclose(same(x).array, network(x).array, rtol=1e-4, atol=1e-5)


def test_a_machine_that_drifts_and_a_process_that_is_struck_leave_the_ratio_as_it_is():
    drifting = (1, 1, 2, 3, 1), (3, 2, 1, 1, 1), (1, 2, 2, 3, 1)
    times = {"minigrad": 2, "torch": 6, "torch nchw": 8, "torch nhwc": 5, "jax": 1}
    sets = [{name: [[ms * speed / 1000] * 2 for speed in each] for name, ms in times.items()} for each in drifting]
    sets[1]["minigrad"] = [[0.04 * speed] for speed in drifting[1]]
    row = cpu.figures(sets, {"tinygrad": "not installed"})
    assert (row["ratio"], row["ratio_sets"], row["ratio_best"]) == (3.0, [3.0, 0.15, 3.0], 2.5)
    assert (row["best"], row["ms"]["jax"], row["steps"]["torch"]) == ("torch nhwc", 1.0, 30)
    assert "ratio 3.0 (0.15 to 3.0)" in cpu.told(row) and "tinygrad not run: not installed" in cpu.told(row)
    exact = [98.0, 99.0]
    found = {"bfloat16": precision.summary([98.5, 99.5], exact), "float16": precision.summary([98.2, 98.0], exact)}
    assert precision.apart({"precisions": found}) == ["bfloat16"], "by more than twice the standard error"


def test_a_worker_that_fails_says_why_and_one_that_is_silent_is_ended():
    job = cpu.job("minigrad", tasks.named("lenet"), 2, 1)
    jobs = {"tiny": job | {"patience": 0.05}, "no": job | {"contender": "no such contender"}, "slow": job}
    with cpu.Contenders(jobs) as contenders:
        assert [*contenders] == ["slow"] and "no such contender" in contenders.reasons["no"]
        assert contenders.reasons["tiny"] == "no answer within 0.05 s"


QUICK = {  # a command: what it must say
    "cpu.py --quick --seed 2 --peers": [
        "lenet, batch 8, threads 1: minigrad",
        "random 2,",
        "random 3,",
        "keras",
        "peak",
    ],
    "ops.py --only relu SGD --threads 1": ["both", "step"],
    "parallel.py --models lenet --seconds 0.1": ["wrapping_percent"],
    "launches.py --networks lenet --rounds 1": ["conv2d_register_forward", "optimizer_update_f32"],
}


@pytest.mark.deep
@pytest.mark.parametrize("command", QUICK)
def test_the_commands_run(command):
    if "launches" not in command:
        pytest.importorskip("torch")
    script, *words = command.split()
    done = subprocess.run([sys.executable, FOLDER / script, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and all(words in done.stdout for words in QUICK[command]), done


@pytest.mark.deep
def test_a_whole_training_beside_pytorch(monkeypatch):
    pytest.importorskip("torch")
    command = "train --data digits --model lenet --epochs 2"  # long enough to be told in hundredths of a second
    monkeypatch.setitem(curves.JOBS, "digits", (("lenet",), command, 1, 0.01))
    rows = curves.measured("digits", ".")
    assert [row["contender"] for row in rows] == ["minigrad", "PyTorch"]
    for row in rows:
        ((first, last),) = row["curves"]
        assert 0 < first["seconds"] < last["seconds"] == pytest.approx(row["seconds"], abs=0.06)
        assert last["loss"] < first["loss"] and 0 < row["to_target"] <= row["seconds"] + 0.06
        assert row["accuracy"] == pytest.approx(100 * last["accuracy"], abs=0.01)
