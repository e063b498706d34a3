"""Same seed, same bits: from run to run, for any number of threads, and without float atomics.

test_workers.py says the same of every op, of optimisers and trainings, and in processes of their own.
"""

import re

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, models, nn, optim
from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.kernels.kernel_runs import on_threads


def trained(name, shape):
    """The parameters after a few steps on fixed data."""
    minigrad.manual_seed(0)
    random = np.random.default_rng(0)
    model = models.build(name, shape)
    rule = optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        x, y = random.standard_normal((19, *shape)).astype(np.float32), random.integers(0, 10, 19)
        rule.zero_grad()
        nn.functional.cross_entropy(model(Tensor(x)), Tensor(y)).backward()
        rule.step()
    return [parameter.array.tobytes() for parameter in model.parameters()]


@pytest.mark.skipif(threads() < 2, reason="this machine gives one thread")
@pytest.mark.parametrize("network", ["keras-cnn", pytest.param("resnet", marks=pytest.mark.deep)])
def test_networks_have_the_same_bits_for_any_number_of_threads(network):
    assert minigrad.is_deterministic()  # unless told otherwise
    shape = (3, 8, 8) if network == "resnet" else (1, 28, 28)
    found = []
    for count in (1, 1, 2):
        with on_threads(count):
            found.append(trained(network, shape))
    assert found[0] == found[1] == found[2]


# ---- kernels of GPUs -------------------------------------------------------------------------------------------------

ATOMIC = re.compile(r"\b((?:atom|red)\.[\w.:]+)")
ALLOWED = {"atom.global.min.u64"}  # the first wrong label: the least of integers is the same in any order


def atomics(text):
    """The atomic operations of PTX, without those of barriers and warps, which have an order."""
    code = re.sub(r"//[^\n]*", "", text)
    return {found for found in ATOMIC.findall(code) if f"barrier.{found}" not in code and f"bar.{found}" not in code}


@pytest.mark.deep
def test_no_kernel_adds_floats_in_any_order():
    """Atomic additions come in the order of the blocks, which no two runs share; what sums here has one order."""
    found = {kernel.name: atomics(kernel.ptx()) for kernel in all_kernels()}
    assert len(found) > 50
    with_atomics = {name: kinds for name, kinds in found.items() if kinds}
    assert set().union(*with_atomics.values()) == ALLOWED
    assert {name.partition("_")[0] for name in with_atomics} == {"softmax"}
