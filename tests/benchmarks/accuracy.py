"""Test accuracies and times of the main job: python tests/benchmarks/accuracy.py [--mnist FOLDER] [--write]

Runs the command line as a user would and reads its last lines. --mnist names a folder with MNIST files, complete or
in part; without it only the shipped digits are trained. --write stores the figures in results/accuracy.json and
the README's picture.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from machine import versions  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "accuracy.json"
PICTURE = Path(__file__).resolve().parents[2] / "examples" / "pictures" / "learning-curve.png"
JOBS = {
    "digits": "train --data digits",
    "MNIST, augmented": "train --data mnist --data-dir {mnist} --model keras-cnn --batch-size 64 --epochs 10 "
    "--optimizer adam --lr 3e-3 --schedule cosine --augment",
    "MNIST": "train --data mnist --data-dir {mnist} --model keras-cnn --batch-size 64 --epochs 10 "
    "--optimizer adam --lr 1e-3 --schedule none",
}


def run(arguments, picture):
    """What a run says of itself, with its wall seconds; its learning curve goes into the file picture, unless None."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "minigrad", *arguments, "--out", str(Path(folder) / "run")]
        environment = {**os.environ, "MINIGRAD_CACHE": str(Path(folder) / "cache")}  # so that kernels are compiled
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        seconds = time.perf_counter() - start
        if picture and not done.returncode:
            shutil.copyfile(Path(folder) / "run" / "learning-curve.png", picture)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(done.stdout[-600:])
    final = re.findall(r"^test accuracy ([\d.]+) %$", done.stdout, re.MULTILINE)
    counts = re.search(r"(\d[\d,]*) training[^\d]+(\d[\d,]*) test", done.stdout)
    row = {"test_accuracy": float(final[-1]), "seconds": round(seconds, 1)}
    if counts:
        row["training_images"], row["test_images"] = (int(n.replace(",", "")) for n in counts.groups())
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", help="folder with MNIST files")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    options = parser.parse_args()
    rows = []
    for name, job in JOBS.items():
        if "{mnist}" in job and not options.mnist:
            continue
        arguments = [part.format(mnist=options.mnist) for part in job.split()]
        command = "minigrad " + job.format(mnist="FOLDER")
        picture = PICTURE if options.write and name == "digits" else None
        rows.append({"job": name, "command": command, **run(arguments, picture)})
        if name == "digits":
            rows[-1]["new_writers_accuracy"] = run([*arguments, "--split", "writers"], None)["test_accuracy"]
        print(rows[-1])
    if options.write:
        RESULTS.write_text(json.dumps({**versions(), "jobs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
