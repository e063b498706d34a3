"""All kernels of a training step together: the compiled CUDA kernels train as those of the CPU do."""

import numpy as np
import pytest

from .kernel_runs import DEVICE, on_host
from .kernel_training import Network


def batches(count, size=24, inputs=13, classes=5):
    random = np.random.default_rng(1)
    centres = random.standard_normal((classes, inputs)) * 2
    for _ in range(count):
        labels = random.integers(0, classes, size)
        yield centres[labels] + random.standard_normal((size, inputs)), labels


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_the_same_training_as_on_the_cpu(dtype):
    networks = [Network(13, 17, 5, device, dtype, rate=0.02) for device in ("cpu", DEVICE)]
    losses = [[network.train(*batch) for batch in batches(6)] for network in networks]
    np.testing.assert_allclose(*losses, rtol=1000 * np.finfo(dtype).eps)
    assert losses[0][-1] < 0.5 * losses[0][0]
    for name, here in networks[0].parameters.items():
        there = on_host(networks[1].parameters[name])
        # Adam divides by roots of squares, which for a tiny gradient magnify its rounding.
        np.testing.assert_allclose(there, here, atol=2e4 * np.finfo(dtype).eps, rtol=0)
