"""Ops on the CPU beside PyTorch, one by one: python tests/benchmarks/ops.py [--only NAME ...] [--write]

Each contender is a process of its own; rounds alternate between them, so that a drift of the machine's speed meets
both. Every row is measured forward alone, without a tape, and forward + backward. The medians count, and their ratio,
PyTorch's time over ours. --write stores the figures in tests/benchmarks/results/ops.json.

Images lie as each library's own convolutions leave them: channels last here, PyTorch's default there.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from ops_rows import ROWS, STEPS
from rounds import Contenders, Failed, in_turn
from worker import measured

RESULTS = Path(__file__).parent / "results" / "ops.json"
ROUNDS, SECONDS = 7, 0.02  # of each contender for each figure, and how long a round lasts


class Ops:
    """What is measured of rows, in the process of a contender."""

    parameters = None

    def __init__(self, engine):
        self.engine, self.calls = engine, {}

    def kinds(self, name):
        """What is measured of a row: "forward" and "both", or "step"."""
        self.calls = self._step(*STEPS[name]) if name in STEPS else self._op(ROWS[name])
        return list(self.calls)

    def choose(self, kind):
        """Have steps do that."""
        self.call = self.calls[kind]

    def steps(self, count):
        """Seconds of so many."""
        return [measured(self.call)[1] for _ in range(count)]

    def _tensor(self, array):
        return self.engine.images(array) if array.ndim == 4 else self.engine.tensor(array)

    def _op(self, row):
        random, api = np.random.default_rng(0), self.engine
        arrays = [random.standard_normal(shape, dtype=np.float32) for shape in row.shapes]
        leaves = [self._tensor(np.abs(array) + 0.1 if row.positive else array) for array in arrays]
        classes = [] if row.classes is None else [self._tensor(random.integers(0, row.high, row.classes))]
        for position, leaf in enumerate(leaves):
            leaf.requires_grad = position not in row.fixed
        out = row.function(api, *leaves, *classes)
        g = self._tensor(random.standard_normal(tuple(out.shape), dtype=np.float32)) if out.ndim else None

        def forward():
            with api.library.no_grad():
                row.function(api, *leaves, *classes)

        def both():
            for leaf in leaves:
                leaf.grad = None
            row.function(api, *leaves, *classes).backward(g)

        return {"forward": forward, "both": both} if out.requires_grad else {"forward": forward}

    def _step(self, name, options, sizes, bound):
        """PyTorch's optimisers run in their fused form where they have one."""
        random, api = np.random.default_rng(0), self.engine
        parameters = [api.tensor(random.standard_normal(size, dtype=np.float32)) for size in sizes]
        for parameter in parameters:
            parameter.requires_grad = True
            parameter.grad = api.tensor(random.standard_normal(tuple(parameter.shape), dtype=np.float32))
        fused = {"fused": True} if api.library.__name__ == "torch" and name != "RMSprop" else {}
        optimizer = getattr(api.optim, name)(parameters, **options, **fused)

        def step():
            if bound is not None:
                api.clip(parameters, bound)
            optimizer.step()

        return {"step": step}


def compare(names, threads):
    """One entry for each row and each thing that is measured of it."""
    found, jobs = [], {name: {"contender": name, "threads": threads, "kind": "ops"} for name in ("minigrad", "torch")}
    with Contenders(jobs) as workers:
        for name in names:
            kinds = [contender.ask("kinds", name) for contender in workers.values()][0]
            for kind in kinds:
                for worker in workers.values():
                    worker.ask("choose", kind)
                turns = in_turn(workers, ROUNDS * SECONDS, SECONDS)
                if workers.reasons:
                    raise Failed(workers.reasons)
                ours, theirs = (1e6 * statistics.median(sum(turns[name], [])) for name in jobs)
                entry = {"op": name, "what": kind, "threads": threads, "minigrad_us": round(ours, 1)}
                found.append(entry | {"torch_us": round(theirs, 1), "ratio": round(theirs / ours, 2)})
                print(*found[-1].values(), sep="  ", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose name begins so")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    options = parser.parse_args()
    names = [name for name in (*ROWS, *STEPS) if name.startswith(tuple(options.only))]
    entries = [entry for threads in options.threads for entry in compare(names, threads)]
    if options.write:
        from machine import versions

        RESULTS.write_text(json.dumps({**versions(), "ops": entries}, indent=1) + "\n")


if __name__ == "__main__":
    main()
