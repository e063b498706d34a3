"""Same seed, same bits: from run to run, for any number of threads, and without float atomics.

test_workers.py says the same of every op, of optimisers and trainings, and in processes of their own.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import minigrad
import minigrad_kernels
from minigrad import Tensor, models, nn, optim
from minigrad_kernels.toolchain import threads
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


def test_no_kernel_adds_floats_in_any_order():
    """Atomic additions come in the order of the blocks, which no two runs share; what sums here has one order. The
    first wrong label is the least of integers, which is the same in any order."""
    folder, found = Path(minigrad_kernels.__file__).parent, []
    for file in [*folder.glob("*/cuda*.py"), *folder.glob("toolchain/cuda/*.py")]:
        atomics = re.findall(r"cuda\.atomic\.(\w+)|[\s\"'](?:atom|red)\.(\w+)", file.read_text())
        found += [(file.parent.name, *one) for one in atomics]
    assert found == [("softmax", "min", "")]
