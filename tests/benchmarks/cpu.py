"""Training steps on the CPU beside PyTorch, JAX and tinygrad: python tests/benchmarks/cpu.py [--parts ...] [--write]

steps       forward, backward and optimiser on one batch, for four networks, batch sizes and numbers of threads
random      the same for two networks that are drawn at random, from a seed that is printed
epoch       keras-cnn over 10,000 images of MNIST, with each library's loader
memory      peak memory of a process that trains, and the time from its start to the end of its first step,
            for minigrad also where no kernel has been compiled before

minigrad        as a user writes it, default settings
torch           PyTorch eagerly, default settings
torch nchw      tuned: an optimiser in one pass (fused=True), a heap that returns no memory to the system
torch nhwc      the same with channels last; the fastest of these three is "PyTorch, best"
jax             a whole step under jit; it keeps to as many CPUs as there are threads
tinygrad        a whole step under TinyJit, which needs clang, or another compiler of its dialect named by CC

Each contender is a process of its own, and they take turns of a tenth of a second. A ratio is the median over rounds of
what it was in the round, so the machine's speed may drift. A row has several sets of fresh processes, as one may lie
well or badly in memory for as long as it lives; the ratio of each set is stored too. A step counts as clean if its
threads waited for a CPU during less than 3 % of it; medians are of clean steps. Each contender's loss must be finite
and fall. JAX and tinygrad run in the first set alone, and at the first batch size alone unless --everywhere. --write
stores each part, once it is complete, in tests/benchmarks/results/cpu.json, from which readme.py writes tables. All
parts take about 20 minutes on two cores.
"""

import argparse
import json
import math
import os
import signal
import statistics
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from engines import PEERS, TORCH
from machine import installed, versions
from rounds import FEWEST, Failed, Worker, ended, in_sets, in_turn, no_kernels, paired, summary, working
from tables import with_spread
from tasks import OPTIMIZERS, drawn, epoch_data, named

RESULTS = Path(__file__).parent / "results" / "cpu.json"
PARTS = "steps", "random", "epoch", "memory"
EPOCHS = 3
TRAINED = 5  # steps until memory is at its peak
BEGUN = time.monotonic()


def say(text):
    print(f"[{(time.monotonic() - BEGUN) / 60:4.1f} min] {text}", flush=True)


def compared(names, task, size, threads, options):
    """A row: the figures of each contender, which of PyTorch's was the fastest, the ratios, and why others are absent.

    Errors  SystemExit if minigrad or PyTorch fails, or if contenders do not train the same number of parameters
    """
    row = {"model": task.name, "batch_size": size, "threads": threads}
    absent = {name: why for name in names if (why := hindrance(name, task, options))}
    starts = {name: starting(name, task, size, threads, options) for name in names if name not in absent}

    def measured(workers, reasons):
        parameters = {name: worker.ready["parameters"] for name, worker in workers.items()}
        if len(set(parameters.values())) > 1:
            sys.exit(f"{task.name}: not the same network: parameters {parameters}")
        seconds = options.seconds / options.processes
        return in_turn(workers, reasons, lambda count: ("steps", count), seconds, dict.fromkeys(workers, FEWEST))

    sets, reasons = in_sets(starts, measured, options.processes, once=PEERS)
    given_up(reasons, task, options)
    return row | figures(sets, absent | reasons)


def starting(name, task, size, threads, options, **more):
    """A function that starts the process of a contender; peers alone may be too slow."""
    patience = options.patience if name in PEERS else 20 * options.patience
    return partial(Worker, name, task, size, threads, patience, **more)


def hindrance(name, task, options):
    """Why a peer need not be started: not installed, or it has failed on this network before; None for the others."""
    if name in PEERS and not installed(name):
        return "not installed"
    return options.failures.get((name, task.name))


def given_up(reasons, task, options):
    """Remember peers that have failed, so that their slowness is met once for each network."""
    options.failures |= {(name, task.name): why for name, why in reasons.items()}


def figures(sets, reasons):
    """Medians and ratios of all sets, [{contender: turns}], and the ratios of each."""
    broken = {name: why for name, why in reasons.items() if name not in PEERS}
    if broken:
        sys.exit("; ".join(f"{name}: {why}" for name, why in broken.items()))
    rows = {name: [row for turns in sets for turn in turns.get(name, []) for row in turn] for name in sets[0]}
    found = {name: summary(taken) for name, taken in rows.items()}
    entry = {key: {name: one[key] for name, one in found.items()} for key in ("ms", "steps", "clean")}
    ratios = {name: paired(sets, name) for name in rows if name.split(",")[0] in TORCH}
    whole = {name: statistics.median(sum(each, [])) for name, each in ratios.items()}
    plain = min((name for name in whole if name.split(",")[0] == "torch"), key=whole.get)
    entry["best"] = best = min(whole, key=whole.get)
    for key, name in (("ratio", plain), ("ratio_best", best)):
        entry[key] = round(whole[name], 2)
        entry[f"{key}_sets"] = [round(statistics.median(each), 2) for each in ratios[name]]
    return entry | ({"not_run": reasons} if reasons else {})


def told(row):
    """A row as a line of text."""
    times = ", ".join(f"{name} {value:.2f}" for name, value in row["ms"].items())
    absent = "".join(f"; {name} not run: {why}" for name, why in row.get("not_run", {}).items())
    clean = f"clean {sum(row['clean'].values())} of {sum(row['steps'].values())}"
    ratios = f"ratio {with_spread(row, 'ratio')}, to the best {with_spread(row, 'ratio_best')}"
    return f"{times} ms; {ratios}; {clean}{absent}"


# ---- parts -----------------------------------------------------------------------------------------------------------


def steps(options):
    rows = []
    for model in options.models:
        for size in options.batch_size:
            for threads in options.threads:
                peers = options.peers if options.everywhere or size == options.batch_size[0] else []
                rows.append(compared(["minigrad", *TORCH, *peers], named(model), size, threads, options))
                say(f"{model}, batch {size}, threads {threads}: {told(rows[-1])}")
    return {"rows": rows}


def random(options):
    say(f"networks drawn from seed {options.seed}")
    rows, threads = [], options.threads[-1]
    for seed in (options.seed, options.seed + 1):
        task = drawn(seed)
        row = compared(["minigrad", *TORCH], task, options.batch_size[0], threads, options)
        rows.append(row | {"shape": task.shape, "optimizer": task.optimizer, "layers": task.layers})
        say(f"{task.name}, threads {threads}: {told(row)}")
    return {"seed": options.seed, "rows": rows}


def epoch(options):
    """Rows of whole epochs: a contender's name says how many processes load its data."""
    task, size, threads = named("keras-cnn"), options.batch_size[0], options.threads[-1]
    most = 50 if options.quick else None
    starts = {"minigrad": starting("minigrad", task, size, threads, options, workers=0)}
    for name in TORCH:
        for count in (0, 2):
            starts[f"{name}, {count} loading"] = starting(name, task, size, threads, options, workers=count)

    def measured(workers, reasons):
        rounds = range(math.ceil(EPOCHS / options.processes))
        found = [{label: worker.ask("epochs", 1, most) for label, worker in workers.items()} for _ in rounds]
        return {label: [rows[label] for rows in found] for label in workers}

    row = {"model": task.name, "batch_size": size, "threads": threads}
    row |= figures(*in_sets(starts, measured, options.processes))
    say(f"epoch: {told(row)}")
    folder = os.environ.get("MINIGRAD_DATA")
    data = "MNIST" if folder and _is_mnist(folder) else "random"
    return {"images": len(epoch_data()[1]), "data": data, "rows": [row]}


def _is_mnist(folder):
    return any((place / "train-images-idx3-ubyte.gz").exists() for place in (Path(folder), Path(folder) / "mnist"))


def memory(options):
    """First steps and peak memory; for minigrad also first steps where nothing is compiled."""
    rows, size, threads = [], options.batch_size[0], options.threads[-1]
    for model in options.models:
        row = {"model": model, "batch_size": size, "threads": threads}
        row |= {key: {} for key in ("first_step_s", "peak_mb", "grown_mb")}
        absent, task = {}, named(model)
        for name in ("minigrad", "torch", *options.peers):
            start = starting(name, task, size, threads, options)
            try:
                if why := hindrance(name, task, options):
                    raise Failed(why)
                if name not in PEERS:
                    lived(start)  # it fills caches
                seconds, end = zip(*[lived(start) for _ in range(1 if name in PEERS else options.starts)], strict=True)
            except Failed as why:
                if name not in PEERS:
                    raise Failed(f"{name}: {why}") from why
                absent[name] = str(why)
                continue
            row["first_step_s"][name] = round(statistics.median(seconds), 2)
            row["peak_mb"][name] = end[-1]["peak_mb"]
            row["grown_mb"][name] = round(end[-1]["peak_mb"] - end[-1]["imported_mb"], 1)
        start, cold = starting("minigrad", task, size, threads, options), []
        for _ in range(options.starts):
            with no_kernels():
                cold.append(lived(start)[0])
        row["empty_cache_s"] = round(statistics.median(cold), 2)
        rows.append(row | ({"not_run": absent} if absent else {}))
        cold = f"minigrad with an empty cache {row['empty_cache_s']}"
        say(f"{model}, first step, s: {row['first_step_s']}, {cold}; peak memory, MB: {row['peak_mb']}")
    return {"rows": rows}


def lived(start):
    """(seconds to the end of its first step, what it says at its end) of a process that trains for a few steps.

    Errors  Failed, with the reason
    """
    with working({"it": start}) as (workers, reasons):
        if workers:
            seconds = workers["it"].first_step
            workers["it"].ask("steps", TRAINED)
            end = ended(workers, reasons)
        if reasons:
            raise Failed(reasons["it"])
        return seconds, end["it"]


# ---- command ---------------------------------------------------------------------------------------------------------


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--models", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--batch-size", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=2, help="measured time of each contender in each row")
    parser.add_argument("--processes", type=int, default=3, help="of each contender in each row, which share that time")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, help="beside PyTorch; none if empty")
    parser.add_argument("--everywhere", action="store_true", help="peers at every batch size, not at the first alone")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the random networks")
    parser.add_argument("--patience", type=float, default=40, help="seconds until a silent peer counts as failed")
    parser.add_argument("--starts", type=int, default=2, help="processes of a contender whose first step is timed")
    parser.add_argument("--quick", action="store_true", help="only see whether all runs: lenet, tiny batches")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    parser.set_defaults(failures={})
    options = parser.parse_args()
    if options.processes < 1:
        parser.error("--processes must be at least 1")
    if options.quick and options.write:
        parser.error("--quick measures nothing worth --write")
    if options.quick:
        options.models, options.batch_size, options.threads, options.seconds = ["lenet"], [8], [1], 0.05
        options.starts = options.processes = 1
    return options


def stored(part, found, options):
    """Put a part into the results file, beside the others, with what it was measured with."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[part] = {"machine": versions(*options.peers), **found}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def main():
    options = parsed()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    try:
        for part in options.parts:
            found = {"steps": steps, "random": random, "epoch": epoch, "memory": memory}[part](options)
            if options.write:
                stored(part, found, options)
    except Failed as why:
        sys.exit(str(why))
    except KeyboardInterrupt:
        sys.exit("interrupted; parts that were complete are stored" if options.write else "interrupted")


if __name__ == "__main__":
    main()
