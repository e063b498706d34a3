"""Data parallel training on the CPU: python tests/benchmarks/parallel.py [--models ...] [--write]

A step is forward, backward with the exchange of gradients, and optimiser, on one batch of all ranks together.

one     one process with as many threads as there are ranks
mpi     ranks with one thread each
torch   PyTorch's DistributedDataParallel over gloo, as many ranks with one thread each

Rounds alternate between the contenders; medians over all steps count. What a DataParallel of one rank and one shard
costs is the ratio of medians of steps with and without it, which alternate in one process on one model. --write stores
all in results/parallel.json.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from machine import versions
from tasks import LAYERS, OPTIMIZERS, OPTIONS, SHAPES, batches, built, step_of

FILE = Path(__file__).parent / "results" / "parallel.json"
CONTENDERS = ("one", "mpi", "torch")
ROUNDS = 10


def minigrad_step(contender, model, size, ranks):
    """(step of this rank, its rank, a function that passes a number from rank 0 to all)."""
    import minigrad
    from minigrad import models, nn, optim, parallel
    from minigrad_kernels.toolchain import set_threads

    world = parallel.init(timeout=600)  # rank 0 waits for its turn, and all others for rank 0
    set_threads(ranks if world.size == 1 else 1)
    minigrad.manual_seed(0)
    network = models.build(model, SHAPES[model])
    if world.size > 1:
        network = parallel.DataParallel(network, world)
    optimizer = getattr(optim, OPTIMIZERS[model])(network.parameters(), **OPTIONS[OPTIMIZERS[model]])
    own = slice(world.rank * size // world.size, (world.rank + 1) * size // world.size)
    data = [(minigrad.Tensor(x[own]), minigrad.Tensor(y[own])) for x, y in batches(model, size, 8)]
    tell = lambda number: int(world.broadcast_bytes(str(number).encode()))
    return step_of(network, optimizer, nn.functional.cross_entropy, data), world.rank, tell


def torch_step(model, size):
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    network = torch.nn.parallel.DistributedDataParallel(built(torch.nn, LAYERS[model]))
    optimizer = getattr(torch.optim, OPTIMIZERS[model])(network.parameters(), **OPTIONS[OPTIMIZERS[model]])
    own = slice(rank * size // ranks, (rank + 1) * size // ranks)
    data = [(torch.from_numpy(x[own]), torch.from_numpy(y[own])) for x, y in batches(model, size, 8)]

    def tell(number):
        value = torch.tensor([number])
        distributed.broadcast(value, 0)
        return int(value)

    return step_of(network, optimizer, torch.nn.functional.cross_entropy, data), rank, tell


def serve(contender, model, size, ranks):
    """Run as many steps as each line that rank 0 reads says; it answers with the seconds of each."""
    import time

    made = torch_step(model, size) if contender == "torch" else minigrad_step(contender, model, size, ranks)
    step, rank, tell = made
    while (count := tell(int(sys.stdin.readline() or 0) if rank == 0 else 0)) > 0:
        seconds = []
        for i in range(count):
            start = time.perf_counter()
            step(i)
            seconds.append(time.perf_counter() - start)
        if rank == 0:
            print(json.dumps(seconds), flush=True)
    if contender == "torch":
        from torch import distributed

        distributed.destroy_process_group()


def overhead(model, size, threads, seconds):
    """Print what a DataParallel of one rank and one shard adds to a step, in percent."""
    import time

    import minigrad
    from minigrad import models, nn, optim, parallel
    from minigrad_kernels.toolchain import set_threads

    set_threads(threads)
    network = models.build(model, SHAPES[model])
    optimizer = getattr(optim, OPTIMIZERS[model])(network.parameters(), **OPTIONS[OPTIMIZERS[model]])
    data = [(minigrad.Tensor(x), minigrad.Tensor(y)) for x, y in batches(model, size, 8)]
    networks = network, parallel.DataParallel(network)
    steps = [step_of(one, optimizer, nn.functional.cross_entropy, data) for one in networks]
    times, end, number = ([], []), time.perf_counter() + seconds, 0
    while time.perf_counter() < end or number < 20:
        for which in (0, 1) if number % 2 else (1, 0):
            start = time.perf_counter()
            steps[which](number)
            times[which].append(time.perf_counter() - start)
        number += 1
    plain, wrapped = (statistics.median(found[5:]) for found in times)
    print(json.dumps(round(100 * (wrapped / plain - 1), 2)))


def start(contender, model, size, ranks):
    """The processes of a contender, that of rank 0 (or of mpiexec) first."""
    command = [sys.executable, __file__, "--serve", contender, model, str(size), str(ranks)]
    one = {"OMP_NUM_THREADS": "1"}
    if contender == "one":
        return [_process(command, {"OMP_NUM_THREADS": str(ranks)}, True)]
    if contender.startswith("mpi"):
        return [_process([Path(sys.executable).with_name("mpiexec"), "-n", str(ranks), *command], one, True)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**one, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [_process(command, {**shared, "RANK": str(rank)}, rank == 0) for rank in range(ranks)]


def _process(command, environment, asked):
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if asked else {"stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, env={**os.environ, **environment}, **streams)


def ask(process, steps):
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def compare(model, size, ranks, seconds):
    """Median step of each contender, in milliseconds."""
    jobs = {contender: start(contender, model, size, ranks) for contender in CONTENDERS}
    try:
        steps, times = {}, {contender: [] for contender in jobs}
        for contender, (first, *_) in jobs.items():
            ask(first, 5)
            steps[contender] = max(1, int(seconds / ROUNDS / statistics.median(ask(first, 3))))
        for _ in range(ROUNDS):
            for contender, (first, *_) in jobs.items():
                times[contender] += ask(first, steps[contender])
    finally:
        for processes in jobs.values():
            processes[0].stdin.close()
            for process in processes:
                process.wait()
    return {contender: round(1000 * statistics.median(values), 3) for contender, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["keras-cnn", "lenet", "mnist-net"], choices=list(OPTIMIZERS))
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8, help="measured time of each contender")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {FILE.name}")
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models:
        size, ranks = arguments.batch_size, arguments.ranks
        found = compare(model, size, ranks, arguments.seconds)
        words = ["--overhead", model, str(size), str(ranks), str(2 * arguments.seconds)]
        cost = json.loads(subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, check=True).stdout)
        rows.append({"model": model, "batch_size": size, "ranks": ranks, "ms": found, "wrapping_percent": cost})
        print(f"{model}: {found}, wrapping costs {cost} %", flush=True)
    if arguments.write:
        FILE.write_text(json.dumps({**versions(), "steps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        contender, model, size, ranks = sys.argv[2:]
        serve(contender, model, int(size), int(ranks))
    elif sys.argv[1:2] == ["--overhead"]:
        model, size, threads, seconds = sys.argv[2:]
        overhead(model, int(size), int(threads), float(seconds))
    else:
        main()
