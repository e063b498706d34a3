"""What our own code adds to the start of a kernel: python tests/benchmarks/launches.py [--write]

A training step of each network runs on the stand-in for CuPy, with kernels that are noted and not run. Then each start
is made again and again, with the arguments that it had: `kernel(grid, block, arguments)`, which packs them and asks for
the current device and stream. The microseconds are the host's, and without CuPy and the driver: an array is a class
with the fields that are read, the device and the stream are known, and cuLaunchKernel returns at once. A kernel stands
for all its starts; the slowest counts. --write notes all in results/launches.json.
"""

import argparse
import json
import sys
import timeit
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from machine import versions  # noqa: E402

import minigrad  # noqa: E402
from minigrad import Tensor, models, optim  # noqa: E402
from minigrad.nn import functional as F  # noqa: E402
from minigrad_kernels.toolchain.cuda import Kernel  # noqa: E402
from tests.device.stand_in_gpus import gpus  # noqa: E402

CALLS, BATCH = 50, 64
FILE = Path(__file__).parent / "results" / "launches.json"
NETWORKS = {"lenet": (1, 28, 28), "keras_cnn": (1, 28, 28), "mnist_net": (1, 28, 28), "resnet18": (3, 32, 32)}


class Array:
    """What the launcher reads of a cupy.ndarray."""

    __module__ = "cupy"

    def __init__(self, array):
        self.shape, self.strides, self.data = array.shape, array.strides, SimpleNamespace(ptr=array.data.ptr)


def noted(network, shape, half):
    """(kernel, grid, block, arguments, shared) of each start in a training step on the stand-in."""
    starts, call = [], Kernel.__call__

    def note(kernel, grid, block, arguments, shared=0):
        read = [Array(a) if hasattr(a, "data") else a for a in arguments]
        starts.append((kernel, grid, block, read, shared))
        call(kernel, grid, block, arguments, shared)

    model = getattr(models, network)().to("cuda")
    optimizer = optim.Adam(model.parameters())
    x, y = minigrad.randn(BATCH, *shape).to("cuda"), Tensor(np.arange(BATCH) % 10).to("cuda")
    with patch.object(Kernel, "__call__", note):
        with minigrad.amp.autocast("float16", enabled=half):
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return starts


def microseconds(rounds, kernel, *given):
    """The least mean of a round of starts."""
    return 1e6 * min(timeit.repeat(lambda: kernel(*given), number=CALLS, repeat=rounds)) / CALLS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--rounds", type=int, default=100, help="of starts of each kernel")
    parser.add_argument("--write", action="store_true")
    options, found = parser.parse_args(), {}
    with gpus(1, execute=False):
        ways = [(name, NETWORKS[name], half) for name in options.networks for half in (False, True)]
        starts = [start for way in ways for start in noted(*way)]
        from minigrad_kernels.toolchain.cuda import launch

        stream = SimpleNamespace(ptr=0)
        with (
            patch.object(launch, "get_current_stream", lambda: stream),
            patch.object(launch.runtime, "getDevice", lambda: 0),
            patch.object(launch.driver, "launchKernel", lambda *given: None),
        ):
            for start in {(start[0].name, len(start[3])): start for start in starts}.values():
                found[start[0].name] = round(microseconds(options.rounds, *start), 1)
                print(f"{start[0].name:50} {found[start[0].name]:5.1f} us, {len(start[3])} arguments", flush=True)
    if options.write:
        FILE.write_text(json.dumps(versions() | {"microseconds": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
