"""Data parallel training on the CPU: python tests/benchmarks/parallel.py [--models ...] [--write]

A step is forward, backward with the exchange of gradients, and optimiser, on one batch of all ranks together.

one     one process with as many threads as there are ranks
mpi     ranks with one thread each
torch   PyTorch's DistributedDataParallel over gloo, as many ranks with one thread each

They take turns, and medians over all steps count. What a DataParallel of one rank and one shard costs is the ratio of
medians of steps with and without it, which alternate in one process on one model. --write stores all in
results/parallel.json.
"""

import argparse
import json
import socket
import statistics
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from engines import Minigrad
from machine import versions
from rounds import Contenders, Failed, Worker, in_turn, milliseconds
from tasks import OPTIMIZERS, data, named, training_step
from worker import measured

FILE = Path(__file__).parent / "results" / "parallel.json"
FILLING = 5  # steps that fill caches


def compared(task, options):
    """Median step of each contender, in milliseconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = {"MASTER_PORT": str(free.getsockname()[1])}
    job = {"kind": "steps", "task": asdict(task), "size": options.batch_size}
    starts = {
        "one": partial(Worker, "minigrad", options.ranks, **job),
        "mpi": partial(Worker, "minigrad ranks", 1, ranks=options.ranks, **job),
        "torch": partial(Worker, "torch ranks", 1, ranks=options.ranks, environment=port, **job),
    }
    with Contenders(starts) as contenders:
        turns = in_turn(contenders, options.seconds)
    if contenders.reasons:
        raise Failed(f"{task.name}: {contenders.reasons}")
    return {name: milliseconds(taken) for name, taken in turns.items()}


def wrapping(task, options):
    """What a DataParallel of one rank and one shard adds to a step, in percent."""
    from minigrad.parallel import DataParallel

    engine = Minigrad(options.ranks)
    model = engine.model(task)
    optimizer = getattr(engine.optim, task.optimizer)(model.parameters(), **task.options)
    steps = [training_step(one, optimizer, engine.nn.functional.cross_entropy) for one in (model, DataParallel(model))]
    images, labels = data(task.shape, options.batch_size, 1)
    batch = engine.images(images[0]), engine.tensor(labels[0])
    times, end, order = ([], []), time.perf_counter() + 2 * options.seconds, (0, 1)
    while time.perf_counter() < end or len(times[0]) < 4 * FILLING:
        for which in order:
            _, seconds = measured(lambda which=which: steps[which](*batch))
            times[which].append(seconds)
        order = order[::-1]  # so that none comes first always
    plain, wrapped = (statistics.median(taken[FILLING:]) for taken in times)
    return round(100 * (wrapped / plain - 1), 2)


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
        task = named(model)
        row = {"model": model, "batch_size": options.batch_size, "ranks": options.ranks}
        rows.append(row | {"ms": compared(task, options), "wrapping_percent": wrapping(task, options)})
        print(rows[-1], flush=True)
    if options.write:
        FILE.write_text(json.dumps({**versions(), "steps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
