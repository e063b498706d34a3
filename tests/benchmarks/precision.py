"""Test accuracy of training in float32, bfloat16 and float16: python tests/benchmarks/precision.py [--write]

The same commands, seed for seed, on the CPU, where the types of 16 bits are exact and slow, and TF32 changes
nothing. --mnist and --cifar10 name folders with the files of these data sets; without them only the shipped digits
are trained. --write stores the figures of each job in results/precision.json, from which readme.py writes a table. A
precision whose mean differs from float32's by more than 0.2 points, beyond twice the standard error of the
difference, ends the program with an error.
"""

import argparse
import contextlib
import io
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from machine import versions  # noqa: E402

from minigrad.cli import main as minigrad  # noqa: E402

PRECISIONS = "float32", "bfloat16", "float16"
RESULTS = Path(__file__).parent / "results" / "precision.json"
POINTS = 0.2  # of test accuracy, in percent
JOBS = {  # name: (command, seeds)
    "digits": ("train --data digits --epochs 10", 3),
    "MNIST": ("train --data mnist --data-dir {mnist} --model keras-cnn --epochs 3 --augment", 3),
    "CIFAR-10": ("train --data cifar10 --data-dir {cifar10} --model lenet --epochs 4 --no-augment", 8),
}


def accuracy(command, precision, seed):
    """The test accuracy of a run, in percent, to be quoted as it is."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        options = ["--precision", precision, "--seed", str(seed), "--no-report", "--out", f"{folder}/run"]
        if minigrad([*command.split(), *options]):
            sys.exit(said.getvalue()[-2000:])
        return 100 * json.loads(Path(folder, "run", "result.json").read_text())["test_accuracy"]


def measured(name, command, seeds, folders):
    """A row: accuracies by precision, seed for seed."""
    row = {"job": name, "command": "minigrad " + command.format(mnist="FOLDER", cifar10="FOLDER"), "seeds": seeds}
    begin = time.perf_counter()
    found = {precision: [] for precision in PRECISIONS}
    for seed in range(seeds):
        for precision in PRECISIONS:
            found[precision].append(accuracy(command.format(**folders), precision, seed))
        print(name, seed, {precision: round(values[-1], 2) for precision, values in found.items()}, flush=True)
    row["precisions"] = {precision: summary(values, found["float32"]) for precision, values in found.items()}
    return row | {"seconds": round(time.perf_counter() - begin)}


def summary(values, exact):
    """Mean, and mean of the differences from float32 with its standard error, in percent and points."""
    differences = [value - other for value, other in zip(values, exact, strict=True)]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    figures = {"mean": statistics.mean(values), "difference": statistics.mean(differences), "standard_error": error}
    return {name: round(value, 3) for name, value in figures.items()} | {"accuracy": [round(v, 2) for v in values]}


def apart(row):
    """The precisions of a row whose difference is too large."""
    found = row["precisions"].items()
    return [name for name, own in found if abs(own["difference"]) - 2 * own["standard_error"] > POINTS]


def store(row):
    """Put a row in place of the one of its job."""
    stored = json.loads(RESULTS.read_text())["jobs"] if RESULTS.exists() else []
    rows = {one["job"]: one for one in stored} | {row["job"]: row}
    ordered = [rows[name] for name in JOBS if name in rows]
    RESULTS.write_text(json.dumps({**versions(), "points": POINTS, "jobs": ordered}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("mnist", "cifar10"):
        parser.add_argument(f"--{name}", help=f"folder with the files of {name}")
    parser.add_argument("--seeds", type=int, help="of each job, at least 2; default as stated for each")
    parser.add_argument("--limit", type=int, help="images of each part of MNIST and CIFAR-10, for a shorter run")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="to run; default all")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    options = parser.parse_args()
    if options.seeds is not None and options.seeds < 2:
        parser.error(f"--seeds is {options.seeds}, wanted at least 2: differences have an error only then")
    rows = []
    for name in options.jobs:
        command, seeds = JOBS[name]
        needed = [folder for folder in ("mnist", "cifar10") if f"{{{folder}}}" in command]
        if options.limit and needed:
            command += f" --limit {options.limit}"
        if all(getattr(options, folder) for folder in needed):
            rows.append(measured(name, command, options.seeds or seeds, vars(options)))
            if options.write:
                store(rows[-1])
    if wrong := {row["job"]: apart(row) for row in rows if apart(row)}:
        sys.exit(f"more than {POINTS} points from float32: {wrong}")


if __name__ == "__main__":
    main()
