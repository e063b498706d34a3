"""Test accuracies and times of the main job: python tests/benchmarks/accuracy.py [--mnist FOLDER] [--write]

Runs the command line as a user would, with nothing compiled. --mnist names a folder with MNIST files, complete or in
part; without it only the shipped digits are trained. --write stores the figures in results/accuracy.json and the
README's picture.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from machine import versions  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from minigrad import draw  # noqa: E402
from minigrad.train import History  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "accuracy.json"
PICTURE = Path(__file__).resolve().parents[2] / "examples" / "pictures" / "learning-curve.png"
MNIST = "train --data mnist --data-dir FOLDER --model keras-cnn --batch-size 64 --epochs 10 --optimizer adam"
JOBS = {
    "digits": "train --data digits",
    "MNIST, augmented": f"{MNIST} --lr 3e-3 --schedule cosine --augment",
    "MNIST": f"{MNIST} --lr 1e-3 --schedule none",
}


def trained(command, folder, data=None, **environment):
    """(what a run into a folder says, its test accuracy in percent); FOLDER in the command stands for `data`."""
    words = [str(data) if word == "FOLDER" else word for word in command.split()]
    words = [sys.executable, "-m", "minigrad", *words, "--out", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        sys.exit(f"{shlex.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, 100 * json.loads((Path(folder) / "result.json").read_text())["test_accuracy"]


def measured(name, options, more=""):
    """The row of a job; the picture is that of the digits."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        said, accuracy = trained(JOBS[name] + more, f"{folder}/run", options.mnist, MINIGRAD_CACHE=f"{folder}/cache")
        seconds = time.perf_counter() - start
        if options.write and JOBS[name] + more == JOBS["digits"]:
            _drawn(Path(folder, "run", "history.jsonl"))
    print(said[-600:])
    training, test = re.search(r"(\d+) training and (\d+) test images", said).groups()
    row = {"job": name, "command": f"minigrad {JOBS[name]}", "test_accuracy": round(accuracy, 2)}
    return row | {"seconds": round(seconds, 1), "training_images": int(training), "test_images": int(test)}


def _drawn(file):
    """The picture: loss and accuracy over the epochs."""
    history = History(map(json.loads, file.read_text().splitlines()))
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, quantity in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        draw.learning_curve(history, axes, quantity)
    draw.save(axes, PICTURE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", help="folder with MNIST files")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    options = parser.parse_args()
    rows = [measured(name, options) for name, job in JOBS.items() if options.mnist or "FOLDER" not in job]
    rows[0]["new_writers_accuracy"] = measured("digits", options, " --split writers")["test_accuracy"]
    if options.write:
        RESULTS.write_text(json.dumps({**versions(), "jobs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
