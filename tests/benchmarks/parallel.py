"""Data parallel training on the CPU: python tests/benchmarks/parallel.py [--models ...] [--write]

A step is forward, backward with the exchange of gradients, and optimiser, on one batch of all ranks together.

one     one process with as many threads as there are ranks
mpi     ranks with one thread each
torch   PyTorch's DistributedDataParallel over gloo, as many ranks with one thread each
wrapped the first in a DataParallel of one rank and one shard: what that costs is the ratio of the two

They take turns, and medians over all steps count. --write stores all in results/parallel.json.
"""

import argparse
import json
import socket
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from machine import versions
from rounds import Contenders, Failed, in_turn, milliseconds, paired
from tasks import OPTIMIZERS, named

FILE = Path(__file__).parent / "results" / "parallel.json"


def compared(model, options):
    """A row: the median step of each contender in milliseconds, and what a DataParallel adds, in percent."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = {"MASTER_PORT": str(free.getsockname()[1])}
    job = {"kind": "steps", "task": asdict(named(model)), "size": options.batch_size}
    jobs = {
        "one": {"contender": "minigrad", "threads": options.ranks, **job},
        "wrapped": {"contender": "minigrad ranks", "threads": options.ranks, **job},
        "mpi": {"contender": "minigrad ranks", "threads": 1, "ranks": options.ranks, **job},
        "torch": {"contender": "torch ranks", "threads": 1, "ranks": options.ranks, "environment": port, **job},
    }
    with Contenders(jobs) as contenders:
        turns = in_turn(contenders, options.seconds)
    if contenders.reasons:
        raise Failed(f"{model}: {contenders.reasons}")
    adds = 100 * (statistics.median(paired(turns, "wrapped", "one")) - 1)
    row = {"model": model, "batch_size": options.batch_size, "ranks": options.ranks}
    row["ms"] = {name: milliseconds(taken) for name, taken in turns.items() if name != "wrapped"}
    return row | {"wrapping_percent": round(adds, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["keras-cnn", "lenet", "mnist-net"], choices=list(OPTIMIZERS))
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8, help="measured time of each contender")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {FILE.name}")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        rows.append(compared(model, options))
        print(rows[-1], flush=True)
    if options.write:
        FILE.write_text(json.dumps({**versions(), "steps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
