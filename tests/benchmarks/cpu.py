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
well or badly in memory for as long as it lives; the ratio of each set is stored too. Each contender's loss must be
finite and fall. JAX and tinygrad run in the first set alone, and at the first batch size alone. --write stores each
part, once it is complete, in tests/benchmarks/results/cpu.json, from which readme.py writes tables. All parts take
30 minutes on two cores with --batch-size 64.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from engines import PEERS, TORCH
from machine import versions
from rounds import Contenders, Failed, in_sets, milliseconds, paired
from tables import with_spread
from tasks import OPTIMIZERS, drawn, epoch_data, named

RESULTS = Path(__file__).parent / "results" / "cpu.json"
TRAINED = 5  # steps until memory is at its peak
STARTS = 2  # processes of a contender whose first step is timed
PATIENCE = 40  # seconds until a silent peer counts as failed
BEGUN = time.monotonic()


def say(text):
    print(f"[{(time.monotonic() - BEGUN) / 60:4.1f} min] {text}", flush=True)


def job(name, task, size, threads, kind="steps", **more):
    """What a contender's process is to do; peers alone may be too slow."""
    more |= {"patience": PATIENCE} if name in PEERS else {}
    return {"contender": name, "threads": threads, "kind": kind, "task": asdict(task), "size": size, **more}


def compared(jobs, options):
    """A row: the figures of each contender, which of PyTorch's was the fastest, the ratios, and why others are absent.

    Errors  Failed if minigrad or PyTorch fails
    """
    model, (first, *_) = jobs["minigrad"]["task"]["name"], jobs.values()
    row = {"model": model, "batch_size": first["size"], "threads": first["threads"]}
    row |= figures(*in_sets(jobs, options.seconds, options.sets, PEERS))
    say(f"{model}, batch {row['batch_size']}, threads {row['threads']}: {told(row)}")
    return row


def figures(sets, reasons):
    """Medians and ratios of all sets, [{contender: turns}], and the ratios of each."""
    turns = {name: [turn for found in sets for turn in found.get(name, [])] for name in sets[0]}
    entry = {"ms": {name: milliseconds(taken) for name, taken in turns.items()}}
    entry["steps"] = {name: sum(map(len, taken)) for name, taken in turns.items()}
    ratios = {name: [paired(found, name) for found in sets] for name in turns if name.split(",")[0] in TORCH}
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
    return f"{times} ms; ratio {with_spread(row, 'ratio')}, to the best {with_spread(row, 'ratio_best')}{absent}"


# ---- parts -----------------------------------------------------------------------------------------------------------


def steps(options):
    rows = []
    for model in options.models:
        for size in options.batch_size:
            names = ["minigrad", *TORCH, *(options.peers if size == options.batch_size[0] else [])]
            for threads in options.threads:
                rows.append(compared({name: job(name, named(model), size, threads) for name in names}, options))
    return {"rows": rows}


def random(options):
    rows = []
    for task in (drawn(options.seed), drawn(options.seed + 1)):
        jobs = {name: job(name, task, options.batch_size[0], options.threads[-1]) for name in ("minigrad", *TORCH)}
        more = {"shape": task.shape, "optimizer": task.optimizer, "layers": task.layers}
        rows.append(compared(jobs, options) | more)
    return {"seed": options.seed, "rows": rows}


def epoch(options):
    """A row of whole epochs: a contender's name says how many processes load its data."""
    shared = named("keras-cnn"), options.batch_size[0], options.threads[-1], "epochs"
    jobs = {"minigrad": job("minigrad", *shared, workers=0, most=options.most)}
    for name in TORCH:
        for count in (0, 2):
            jobs[f"{name}, {count} loading"] = job(name, *shared, workers=count, most=options.most)
    _, labels, data = epoch_data()
    return {"images": len(labels), "data": data, "rows": [compared(jobs, options)]}


def memory(options):
    """First steps and peak memory; for minigrad also first steps where nothing is compiled."""
    rows, size, threads = [], options.batch_size[0], options.threads[-1]
    for model in options.models:
        row, absent = {"model": model, "batch_size": size, "threads": threads}, {}
        row |= {key: {} for key in ("first_step_s", "peak_mb", "grown_mb")}
        for name in ("minigrad", "torch", *options.peers):
            try:
                _, *ends = [
                    lived(job(name, named(model), size, threads)) for _ in range(1 + STARTS)
                ]  # one fills caches
            except Failed as why:
                if name not in PEERS:
                    raise
                absent[name] = str(why)
                continue
            row["first_step_s"][name] = round(statistics.median(end.first_step for end in ends), 2)
            row["peak_mb"][name] = ends[-1].peak_mb
            row["grown_mb"][name] = round(ends[-1].peak_mb - ends[-1].imported_mb, 1)
        cold = []
        for _ in range(STARTS):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                empty = {"environment": {"MINIGRAD_CACHE": folder}}
                cold.append(lived(job("minigrad", named(model), size, threads, **empty)).first_step)
        row["empty_cache_s"] = round(statistics.median(cold), 2)
        rows.append(row | ({"not_run": absent} if absent else {}))
        cold = f"minigrad with an empty cache {row['empty_cache_s']}"
        say(f"{model}, first step, s: {row['first_step_s']}, {cold}; peak memory, MB: {row['peak_mb']}")
    return {"rows": rows}


def lived(job):
    """The Worker of a process that trained for a few steps; Failed, with the reason, if it did not."""
    with Contenders({"one": job}) as contenders:
        worker = contenders.get("one")
        contenders.tried("one", lambda worker: (worker.ask("steps", TRAINED), worker.ask("end")))
    if contenders.reasons:
        raise Failed(contenders.reasons["one"])
    return worker


# ---- command ---------------------------------------------------------------------------------------------------------

PARTS = {"steps": steps, "random": random, "epoch": epoch, "memory": memory}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--models", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--batch-size", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=2, help="measured time of each contender in each row")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, help="beside PyTorch; none if empty")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the random networks")
    parser.add_argument("--quick", action="store_true", help="only see whether all runs: lenet, tiny batches")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    parser.set_defaults(sets=9, most=None)
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("--quick measures nothing worth --write")
    if options.quick:
        options.models, options.batch_size, options.threads, options.seconds = ["lenet"], [8], [1], 0.05
        options.sets, options.most = 1, 50
    return options


def main():
    options = parsed()
    for part in options.parts:
        try:
            found = PARTS[part](options)
        except Failed as why:
            sys.exit(str(why))
        if options.write:  # beside the other parts, with what it was measured with
            results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            results[part] = {"machine": versions(*options.peers), **found}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
