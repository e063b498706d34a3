"""Same seed, same bits: from run to run, in every process, for any number of threads, and without float atomics."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, models, nn, optim
from minigrad_kernels.toolchain import set_threads, share, shared, threads
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.conftest import REPOSITORY
from tests.ops.test_ops import OPS
from tests.optim.optim_parts import RULES

from . import same_bits


def in_a_process(parts, counts, types=("float32",), **environment):
    """What tests/core/same_bits.py finds in a process of its own, which may have as many threads as it compares."""
    command = [sys.executable, "-m", "tests.core.same_bits", "--parts", *parts, "--types", *types]
    command += ["--threads", *map(str, counts)]
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "kernels")])
    settings = {"NUMBA_NUM_THREADS": str(max(counts)), "PYTHONPATH": paths, "OMP_WAIT_POLICY": "PASSIVE"}
    settings = os.environ | settings | environment
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_deterministic_is_the_default():
    assert minigrad.is_deterministic()


@pytest.mark.deep
def test_every_op_and_optimiser_has_the_same_bits_for_any_number_of_threads():
    found = in_a_process(["ops", "optimisers"], same_bits.THREADS)
    assert not found["ops"]["different"] and not found["optimisers"]["different"]
    assert found["ops"]["compared"] == len(same_bits.operator_rows()) >= sum(len(op.samples) for op in OPS)
    assert found["optimisers"]["compared"] == 2 * len(RULES)
    assert found["ops"]["teams"] > found["ops"]["compared"] and found["optimisers"]["teams"] >= 100  # threads did share


@pytest.mark.deep
def test_trainings_have_the_same_bits_in_any_process():
    runs = {1: {"PYTHONHASHSEED": "1"}, 2: {"PYTHONHASHSEED": "2"}, 4: {"PYTHONHASHSEED": "3"}}
    found = [in_a_process(["trainings"], [count], **settings)["trainings"] for count, settings in runs.items()]
    assert len({run["hash"] for run in found}) == 1
    assert all(run["compared"] == len(same_bits.TRAININGS) for run in found)
    assert found[0]["teams"] == 0 < found[1]["teams"] == found[2]["teams"]


def trained(name, shape, count, optimizer):
    """The parameters after a few steps on fixed data."""
    minigrad.manual_seed(0)
    random = np.random.default_rng(0)
    model = models.build(name, shape)
    rule = getattr(optim, optimizer)(model.parameters(), lr=1e-2)
    before = threads()
    set_threads(count)
    try:
        for _ in range(3):
            x = Tensor(random.standard_normal((19, *shape)).astype(np.float32))
            y = Tensor(random.integers(0, 10, 19))
            rule.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            rule.step()
    finally:
        set_threads(before)
    return [parameter.array.copy() for parameter in model.parameters()]


@pytest.mark.parametrize(
    "name, shape, optimizer",
    [
        ("keras-cnn", (1, 28, 28), "Adam"),
        ("lenet", (1, 28, 28), "SGD"),
        ("mnist-net", (1, 28, 28), "RMSprop"),
        ("mlp", (1, 28, 28), "AdamW"),
        ("resnet", (3, 8, 8), "SGD"),
    ],
)
def test_same_bits_for_any_number_of_threads(name, shape, optimizer):
    if threads() < 2:
        pytest.skip("this machine gives one thread")
    first = trained(name, shape, 1, optimizer)
    for count in (1, 2):
        for a, b in zip(first, trained(name, shape, count, optimizer), strict=True):
            assert a.tobytes() == b.tobytes()


@shared
def parts_of_a_sum(team, x, parts):
    """What no kernel may do: the shares, and so the order of the sum, follow the number of threads."""
    total = x[0] * 0
    for k in share(x.size, team):
        total += x[k]
    parts[team[0]] = total


def test_a_sum_cut_by_threads_would_be_seen(monkeypatch):
    def rows(dtypes):
        parts = np.zeros(2, np.float32)
        parts_of_a_sum(np.random.default_rng(0).standard_normal(10_000, np.float32), parts)
        yield "sum", [parts.sum()]
        yield "shape", [np.zeros(3)]

    monkeypatch.setitem(same_bits.PARTS, "planted", rows)
    before = threads()
    if before < 2:
        pytest.skip("this machine gives one thread")
    try:
        assert same_bits.compared("planted", ["float32"], [1, 2])["different"] == ["sum on 2 threads"]
        assert not same_bits.compared("planted", ["float32"], [2], repeats=2)["different"]
    finally:
        set_threads(before)


# ---- kernels of GPUs -------------------------------------------------------------------------------------------------

ATOMIC = re.compile(r"\b((?:atom|red)\.[\w.:]+)")
ALLOWED = {"atom.global.min.u64"}  # the first wrong label: the least of integers is the same in any order


def atomics(text):
    """The atomic operations of PTX, without those of barriers and warps, which have an order."""
    code = re.sub(r"//[^\n]*", "", text)
    return {found for found in ATOMIC.findall(code) if f"barrier.{found}" not in code and f"bar.{found}" not in code}


def test_no_kernel_adds_floats_in_any_order():
    """Atomic additions come in the order of the blocks, which no two runs share; what sums here has one order."""
    found = {kernel.name: atomics(kernel.ptx()) for kernel in all_kernels()}
    assert len(found) > 50
    with_atomics = {name: kinds for name, kinds in found.items() if kinds}
    assert set().union(*with_atomics.values()) == ALLOWED
    assert {name.partition("_")[0] for name in with_atomics} == {"softmax"}


def test_float_atomics_would_be_seen():
    text = "atom.global.add.f32 %f1, [%rd1], %f2;\n@%p1 red.relaxed.gpu.global.add.noftz.f16x2 [%rd1], %r1; // red.x"
    assert atomics(text) == {"atom.global.add.f32", "red.relaxed.gpu.global.add.noftz.f16x2"}
    assert not atomics("barrier.red.popc.u32 %r1, 0, %p1;  bar.red.and.pred %p2, 0, %p1;")
