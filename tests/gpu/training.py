"""The main jobs on the GPU by the command of the package: the CPU's accuracy, and the same bits twice."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from minigrad.data import available

ROOT = Path(__file__).resolve().parents[2]
CPU = ROOT / "tests" / "benchmarks" / "results" / "accuracy.json"
SHORT, IMAGES = 0.4, 3  # points, or images, that fewer may be right than on the CPU: sums are taken in another order


def _run(command, folder, device):
    """(result, hash of the weights, seconds) of one run."""
    begun = time.perf_counter()
    words = [*command, "--device", device, "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "minigrad", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    result = json.loads((folder / "result.json").read_text())
    return result, result["weights"], seconds


def job(row, device="cuda", extra=()):
    """A job of the CPU's results file on a device, twice; None where its data are not on disk."""
    words = row["command"].split()[1:]
    folder = available(words[words.index("--data") + 1])
    if folder is None:
        return None
    command = [str(folder) if word == "FOLDER" else word for word in words] + list(extra)
    with tempfile.TemporaryDirectory() as place:
        (first, weights, seconds), (_, again, _) = (_run(command, Path(place) / name, device) for name in "ab")
    accuracy = round(100 * first["test_accuracy"], 2)
    found = {"job": row["job"], "test_accuracy": accuracy, "on_the_cpu": row["test_accuracy"]}
    found |= {"same_bits_twice": bool(weights) and weights == again, "seconds": round(seconds, 1)}
    short = max(SHORT, 100 * IMAGES / row["test_images"])
    return found | {"failed": accuracy < row["test_accuracy"] - short or not found["same_bits_twice"]}


def training(found):
    found["jobs"] = []
    for row in json.loads(CPU.read_text())["jobs"]:
        result = job(row)
        print(f"  {row['job']}: {result or 'its data are not on disk'}", flush=True)
        found["jobs"] += [result] if result else []
    found["failed"] = any(job["failed"] for job in found["jobs"])
