"""Test accuracy of training in float32, bfloat16 and float16: python tests/benchmarks/precision.py [--write]

The same commands, seed for seed, on the CPU, where the types of 16 bits are exact and slow, and TF32 changes
nothing. --mnist and --cifar10 name folders with the files of these data sets; without them only the shipped digits
are trained. --write, which wants both, stores the figures in results/precision.json, from which readme.py writes a
table. A precision whose mean differs from float32's by more than 0.2 points, beyond twice the standard error of the
difference, ends the program with an error.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from accuracy import trained  # noqa: E402
from machine import versions  # noqa: E402

PRECISIONS = "float32", "bfloat16", "float16"
RESULTS = Path(__file__).parent / "results" / "precision.json"
POINTS = 0.2  # of test accuracy, in percent
JOBS = {  # name: (command, seeds)
    "digits": ("train --data digits --epochs 10", 8),
    "MNIST": ("train --data mnist --data-dir FOLDER --model keras-cnn --epochs 3 --augment", 3),
    "CIFAR-10": ("train --data cifar10 --data-dir FOLDER --model lenet --epochs 4 --no-augment", 8),
}


def measured(name, folder):
    """A row: accuracies by precision, seed for seed."""
    (command, seeds), begin, found = JOBS[name], time.perf_counter(), {precision: [] for precision in PRECISIONS}
    for seed in range(seeds):
        for precision in PRECISIONS:
            with tempfile.TemporaryDirectory() as place:
                words = f"{command} --precision {precision} --seed {seed} --no-report"
                found[precision].append(trained(words, f"{place}/run", folder)[1])
        print(name, seed, {precision: round(values[-1], 2) for precision, values in found.items()}, flush=True)
    row = {"job": name, "command": f"minigrad {command}", "seeds": seeds}
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("mnist", "cifar10"):
        parser.add_argument(f"--{name}", help=f"folder with the files of {name}")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    options = parser.parse_args()
    folders = {"digits": ".", "MNIST": options.mnist, "CIFAR-10": options.cifar10}
    if options.write and not all(folders.values()):
        parser.error("--write wants --mnist and --cifar10, so that all figures are of one commit")
    rows = {name: measured(name, folder) for name, folder in folders.items() if folder}
    if options.write:
        RESULTS.write_text(json.dumps({**versions(), "points": POINTS, "jobs": [*rows.values()]}, indent=1) + "\n")
    if wrong := {name: apart(row) for name, row in rows.items() if apart(row)}:
        sys.exit(f"more than {POINTS} points from float32: {wrong}")


if __name__ == "__main__":
    main()
