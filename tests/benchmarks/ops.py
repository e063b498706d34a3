"""Ops on the CPU beside PyTorch, one by one: python tests/benchmarks/ops.py [--only NAME ...] [--write]

Each contender is a process of its own; rounds alternate between them, so that a drift of the machine's speed meets
both. Every row is measured forward alone, without a tape, and forward + backward. The medians count, and their ratio,
PyTorch's time over ours. --write stores the figures in tests/benchmarks/results/ops.json.

Images lie as each library's own convolutions leave them: channels last here, PyTorch's default there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ops_rows import ROWS, STEPS

RESULTS = Path(__file__).parent / "results" / "ops.json"
ROUNDS, SECONDS = 7, 0.02  # of each contender for each figure, and how long a round lasts


class Api(NamedTuple):
    name: str
    module: object
    F: object
    optim: object
    clip: object


def api_of(engine, threads):
    if engine == "torch":
        import torch

        torch.set_num_threads(threads)
        return Api(engine, torch, torch.nn.functional, torch.optim, torch.nn.utils.clip_grad_norm_)
    import minigrad
    from minigrad import nn, optim
    from minigrad_kernels.toolchain import set_threads

    set_threads(threads)
    return Api(engine, minigrad, nn.functional, optim, optim.clip_grad_norm_)


def tensor(api, array):
    if api.name == "torch":
        return api.module.from_numpy(array)
    if array.ndim == 4:
        array = np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    return api.module.Tensor(array)


def op_runs(api, row):
    """{"forward": a function that runs it, "both": ...}."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape, dtype=np.float32) for shape in row.shapes]
    leaves = [tensor(api, np.abs(array) + 0.1 if row.positive else array) for array in arrays]
    classes = [] if row.classes is None else [tensor(api, random.integers(0, row.high, row.classes))]
    for position, leaf in enumerate(leaves):
        leaf.requires_grad = position not in row.fixed
    out = row.function(api, *leaves, *classes)
    g = tensor(api, random.standard_normal(tuple(out.shape), dtype=np.float32)) if out.ndim else None

    def forward():
        with api.module.no_grad():
            row.function(api, *leaves, *classes)

    def both():
        for leaf in leaves:
            leaf.grad = None
        row.function(api, *leaves, *classes).backward(g)

    return {"forward": forward, "both": both} if out.requires_grad else {"forward": forward}


def step_runs(api, name, options, sizes, bound, fused):
    random = np.random.default_rng(0)
    parameters = [tensor(api, random.standard_normal(size, dtype=np.float32)) for size in sizes]
    for parameter in parameters:
        parameter.requires_grad = True
        parameter.grad = tensor(api, random.standard_normal(tuple(parameter.shape), dtype=np.float32))
    options = {**options, "fused": True} if fused else options
    optimizer = getattr(api.optim, name)(parameters, **options)

    def step():
        if bound is not None:
            api.clip(parameters, bound)
        optimizer.step()

    return {"step": step}


def runs_of(api, name):
    """What is measured of a row. PyTorch's optimisers run in their fused form where they have one."""
    if name in STEPS:
        return step_runs(api, *STEPS[name], fused=api.name == "torch" and STEPS[name][0] != "RMSprop")
    return op_runs(api, ROWS[name])


def serve(engine, threads):
    """Answer each line, [name of a row, what, repetitions], with the seconds of one repetition."""
    api, name, runs = api_of(engine, threads), None, {}
    for line in sys.stdin:
        wanted, what, count = json.loads(line)
        if wanted != name:
            name, runs = wanted, runs_of(api, wanted)
        if what is None:
            print(json.dumps(list(runs)), flush=True)
            continue
        start = time.perf_counter()
        for _ in range(count):
            runs[what]()
        print(json.dumps((time.perf_counter() - start) / count), flush=True)


def start(engine, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--serve", engine, str(threads)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def ask(worker, *question):
    worker.stdin.write(json.dumps(question) + "\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


def measure(workers, name, what):
    """The median seconds of each contender for what a row does."""
    counts, times = {}, {engine: [] for engine in workers}
    for engine, worker in workers.items():
        ask(worker, name, what, 2)
        counts[engine] = max(1, int(SECONDS / ask(worker, name, what, 2)))
    for _ in range(ROUNDS):
        for engine, worker in workers.items():
            times[engine].append(ask(worker, name, what, counts[engine]))
    return {engine: statistics.median(values) for engine, values in times.items()}


def compare(names, threads):
    """One entry for each row and each thing that is measured of it."""
    workers = {engine: start(engine, threads) for engine in ("minigrad", "torch")}
    found = []
    try:
        for name in names:
            asked = [ask(worker, name, None, 0) for worker in workers.values()]
            for what in asked[0]:
                ours, theirs = (1e6 * seconds for seconds in measure(workers, name, what).values())
                entry = {"op": name, "what": what, "threads": threads, "minigrad_us": round(ours, 1)}
                found.append(entry | {"torch_us": round(theirs, 1), "ratio": round(theirs / ours, 2)})
                print(
                    f"{name:42} {what:8} threads {threads}: {ours:9.1f} us, torch {theirs:9.1f} us, {theirs / ours:.2f}"
                )
    finally:
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", help="rows whose name begins so")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    arguments = parser.parse_args()
    names = [name for name in (*ROWS, *STEPS) if not arguments.only or name.startswith(tuple(arguments.only))]
    entries = [entry for threads in arguments.threads for entry in compare(names, threads)]
    if arguments.write:
        from machine import versions

        RESULTS.write_text(json.dumps({**versions(), "ops": entries}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        main()
