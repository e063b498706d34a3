"""Whole trainings on the CPU beside PyTorch: python tests/benchmarks/curves.py [--mnist FOLDER] [--cifar10 FOLDER]

minigrad trains by its command line. PyTorch, tuned and with channels last, trains a network of the same layers on the
same batches, augmented alike, with the same rates; both have as many threads as there are cores. Seconds are those of
training: the first update, in which kernels are compiled, and evaluations are left out. --write stores loss, accuracy
and seconds after each epoch in results/curves.json, and draws the picture of figures.md.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
from accuracy import trained  # noqa: E402
from engines import ENGINES  # noqa: E402
from machine import versions  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from tables import LEVEL  # noqa: E402
from tasks import named, training_step  # noqa: E402

from minigrad import draw, parallel  # noqa: E402
from minigrad.cli.arguments import parser as commands  # noqa: E402
from minigrad.cli.settings import Settings  # noqa: E402
from minigrad.cli.training import Training  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "curves.json"
PICTURE = Path(__file__).resolve().parents[2] / "examples" / "pictures" / "cifar10.png"
MNIST = "train --data mnist --data-dir FOLDER --model keras-cnn --schedule onecycle --augment"
JOBS = {  # data: networks, the command, seeds, and the test accuracy to which seconds are told
    "mnist": (("keras-cnn", "lenet", "mnist-net"), MNIST, 3, 0.985),
    "cifar10": (("resnet",), "train --data cifar10 --data-dir FOLDER --epochs 20", 1, None),
}
RULES = {"adam": ("Adam", {}), "sgd": ("SGD", {"momentum": 0.9, "nesterov": True})}  # as the command line has them


def ours(words, folder):
    """What minigrad's command gives: a row for each epoch."""
    with tempfile.TemporaryDirectory() as place:
        said, _ = trained(f"{words} --no-report", f"{place}/run", folder)
        lines = Path(place, "run", "history.jsonl").read_text().splitlines()
    rows, seconds, images = [], 0.0, int(re.search(r"(\d+) training", said)[1])
    for row in map(json.loads, lines):
        seconds += images / row["images_per_second"]
        rows.append({"seconds": round(seconds, 3), "loss": row["loss"], "accuracy": row["test_accuracy"]})
    return rows


def theirs(words, folder):
    """The same by PyTorch, in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--torch",
        *(str(folder) if word == "FOLDER" else word for word in words.split()),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def by_torch(words):
    """Print the rows of the training by PyTorch that the words of a command ask minigrad for."""
    engine = ENGINES["torch nhwc"](os.cpu_count())
    settings, _ = Settings.of(commands().parse_args(words))
    plan = Training(None, settings, parallel.init())  # for its batches and rates; its network is not used
    torch = engine.library
    torch.manual_seed(settings.seed)
    network = engine.model(named(settings.model))
    rule, options = RULES[settings.optimizer]
    options = {"lr": settings.lr, "weight_decay": settings.weight_decay, "fused": True, **options}
    optimizer, schedule = getattr(torch.optim, rule)(network.parameters(), **options), plan.how["schedule"]
    step, taken = training_step(network, optimizer, torch.nn.functional.cross_entropy), partial(map, as_torch)
    rows, seconds = [], 0.0
    for _ in range(settings.epochs):
        network.train()
        total, images, timed, begun = 0.0, 0, 0, time.perf_counter()
        for x, y in map(taken, plan.loader):
            optimizer.param_groups[0]["lr"] = plan.optimizer.param_groups[0]["lr"]
            total, images = total + step(x, y).item() * len(y), images + len(y)
            if schedule is not None:
                schedule.step()
            if rows or images > len(y):
                timed += len(y)
            else:
                begun = time.perf_counter()
        seconds += (time.perf_counter() - begun) * images / timed
        network.eval()
        with torch.no_grad():
            right = sum((network(x).argmax(1) == y).sum().item() for x, y in map(taken, plan.test))
        accuracy = right / len(plan.test.dataset)
        rows.append({"seconds": round(seconds, 3), "loss": total / images, "accuracy": accuracy})
        print(f"  PyTorch {len(rows)}: {rows[-1]}", file=sys.stderr, flush=True)
    print(json.dumps(rows))


def as_torch(tensor):
    """A tensor of PyTorch with the memory of one of minigrad's."""
    import torch

    return torch.from_numpy(tensor.numpy())


def measured(data, folder):
    """Rows: a network, a contender, its curve for each seed."""
    networks, command, seeds, target = JOBS[data]
    rows = []
    for network in networks:
        words = command.replace("keras-cnn", network)
        for name, train in (("minigrad", ours), ("PyTorch", theirs)):
            curves = [train(f"{words} --seed {seed}", folder) for seed in range(seeds)]
            row = {"data": data, "network": network, "contender": name, "command": f"minigrad {words}"}
            rows.append(row | {"target": target, "curves": curves} | summary(curves, target))
            print({key: value for key, value in rows[-1].items() if key != "curves"}, flush=True)
    return rows


def summary(curves, target):
    """Medians over seeds: accuracy at the end, its rise in the last epochs, seconds in all and to the target."""
    reached = [
        next((row["seconds"] for row in curve if row["accuracy"] >= target), math.inf) for curve in curves if target
    ]
    found = {"accuracy": round(100 * median(curve[-1]["accuracy"] for curve in curves), 2)}
    rises = [curve[-1]["accuracy"] - curve[-1 - min(LEVEL, len(curve) - 1)]["accuracy"] for curve in curves]
    found |= {
        "rise": round(100 * median(rises), 2),
        "seconds": round(median(curve[-1]["seconds"] for curve in curves), 1),
    }
    if target:
        found["to_target"] = round(median(reached), 2) if median(reached) < math.inf else None
    return found


def drawn(rows):
    """The picture: loss and test accuracy over the minutes of training, one curve a row."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, (name, label) in zip(
        figure.subplots(1, 2), (("loss", "training loss"), ("accuracy", "test accuracy")), strict=True
    ):
        for row in rows:
            (curve,) = row["curves"]
            axes.plot(
                [one["seconds"] / 60 for one in curve], [one[name] for one in curve], ".-", label=row["contender"]
            )
        axes.set(xlabel="minutes of training", ylabel=label)
        axes.legend()
    draw.save(axes, PICTURE)


def main():
    if sys.argv[1:2] == ["--torch"]:
        return by_torch(sys.argv[2:])
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in JOBS:
        options.add_argument(f"--{name}", help=f"folder with the files of {name}")
    options.add_argument("--write", action="store_true", help=f"store the figures in {RESULTS.name}")
    options = vars(options.parse_args())
    for name in (name for name in JOBS if options[name]):
        found = {"machine": versions(), "rows": measured(name, Path(options[name]).resolve())}
        if options["write"]:  # beside the other data, with what it was measured with
            kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps(kept | {name: found}, indent=1) + "\n")
            if name == "cifar10":
                drawn(found["rows"])


if __name__ == "__main__":
    main()
