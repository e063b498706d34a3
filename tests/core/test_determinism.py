"""Same seed, same bits: from run to run, in every process, for any number of threads, and without float atomics."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest

import minigrad
import minigrad_kernels
from minigrad import Tensor, models, nn, optim
from minigrad_kernels.toolchain import set_threads, threads
from tests.core import same_bits
from tests.core.test_workers import program
from tests.optim.optim_parts import RULES


def found_by(part, *counts, **environment):
    """What same_bits.py finds in a process of its own, which may have as many threads as it compares."""
    counts = [str(count) for count in counts]
    return json.loads(program("same_bits", part, *counts, NUMBA_NUM_THREADS=max(counts), **environment))


@pytest.mark.deep
def test_every_op_and_optimiser_has_the_same_bits_for_any_number_of_threads():
    found = {part: found_by(part, 1, 2, 4) for part in ("ops", "optimisers")}
    assert not found["ops"]["different"] and not found["optimisers"]["different"]
    assert found["ops"]["compared"] == len(same_bits.operator_rows())
    assert found["optimisers"]["compared"] == 2 * len(RULES)
    assert found["ops"]["teams"] > found["ops"]["compared"] and found["optimisers"]["teams"] >= 100  # threads did share


@pytest.mark.deep
def test_trainings_have_the_same_bits_in_any_process():
    found = [found_by("trainings", count, PYTHONHASHSEED=str(count)) for count in (1, 2, 4)]
    assert len({run["hash"] for run in found}) == 1
    assert all(run["compared"] == len(same_bits.TRAININGS) for run in found)
    assert found[0]["teams"] == 0 < found[1]["teams"] == found[2]["teams"]


def trained(name, shape, count):
    """The parameters after a few steps on fixed data."""
    minigrad.manual_seed(0)
    random = np.random.default_rng(0)
    model = models.build(name, shape)
    rule = optim.Adam(model.parameters(), lr=1e-2)
    set_threads(count)
    for _ in range(3):
        x, y = random.standard_normal((19, *shape)).astype(np.float32), random.integers(0, 10, 19)
        rule.zero_grad()
        nn.functional.cross_entropy(model(Tensor(x)), Tensor(y)).backward()
        rule.step()
    return [parameter.array.tobytes() for parameter in model.parameters()]


@pytest.fixture
def before():
    """How many threads there are, two at least; as many afterwards."""
    before = threads()
    if before < 2:
        pytest.skip("this machine gives one thread")
    yield before
    set_threads(before)


@pytest.mark.parametrize("network", ["keras-cnn", pytest.param("resnet", marks=pytest.mark.deep)])
def test_networks_have_the_same_bits_for_any_number_of_threads(network, before):
    assert minigrad.is_deterministic()  # unless told otherwise
    shape = (3, 8, 8) if network == "resnet" else (1, 28, 28)
    first, again, shared = (trained(network, shape, count) for count in (1, 1, 2))
    assert first == again == shared


# ---- kernels of GPUs -------------------------------------------------------------------------------------------------


def test_no_kernel_adds_floats_in_any_order():
    """Atomic additions come in the order of the blocks, which no two runs share; what sums here has one order. The
    first wrong label is the least of integers, which is the same in any order."""
    found = []
    folder = Path(minigrad_kernels.__file__).parent
    for file in [*folder.glob("*/cuda*.py"), *folder.glob("toolchain/cuda/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("cuda.atomic"):
                found.append((file.parent.name, node.attr))
            if isinstance(node, ast.Constant) and re.match(r"\s*(atom|red)\.", str(node.value)):
                found.append((file.parent.name, node.value))
    assert found == [("softmax", "min")]
