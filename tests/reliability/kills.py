"""Trainings that are killed at random moments, go on, and must end with the bits of one that was not.

    python tests/reliability/kills.py --kills 20              # a few
    python tests/reliability/kills.py --kills 200 --write     # and keep the counts in results/kills.json

For each recipe one training runs to its end. Others are killed by SIGKILL, go on, are killed again, until all kills are
spent; then each goes on to its end. Half of the kills come at a random moment, half come from the process itself while
it writes a file: before an fsync, a rename or a removal. No kill may damage the newest checkpoint. Weights, the state
of the optimiser, history, random numbers and all else in the last checkpoint must equal those of the unbroken training,
but for times; else it is printed, and the exit status is 1.
"""

import argparse
import collections
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if not __package__:
    sys.path[:1] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "kernels")]

from minigrad import checkpoint  # noqa: E402
from minigrad.cli import main as minigrad  # noqa: E402
from tests.reliability.results import store  # noqa: E402
from tests.train.checkpoint_parts import state_of, tensors_of  # noqa: E402

# It saves every second update, and after each epoch.
WORDS = "train --data digits --epochs 4 --seed 5 --no-report --save-every 2"
RECIPES = {
    "accumulated": "--model mlp --batch-size 16 --limit 96 --accumulate 4 --clip 1 --schedule onecycle",
    "augmented": "--model digits-cnn --batch-size 16 --limit 96 --augment --optimizer sgd --schedule step",
    "dropout": "--model mnist-net --batch-size 8 --limit 16 --optimizer rmsprop",
    "float16": "--model mlp --batch-size 16 --limit 96 --augment --precision float16 --clip 1",
}
# Times, and the counts of gradients for pictures, of which a training that goes on at the end of an epoch has none.
OTHERS = {"seconds", "images_per_second", "timed_images", "histograms"}
TIMEOUT = 300


class Failed(Exception):
    """A training that did not do what it must."""


def words_of(recipe):
    """What `minigrad` is called with."""
    return [*WORDS.split(), *RECIPES[recipe].split()]


def child(folder, recipe, die):
    """Train in this process, which kills itself at such a call of the operating system; at last say how many it was."""
    calls = itertools.count(1)

    def around(real):
        def call(*arguments, **options):
            if next(calls) == die:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, around(getattr(os, name)))
    status = minigrad([*words_of(recipe), "--continue", "--out", folder])
    print(next(calls) - 1)
    return status


def run(folder, recipe, die=0, moment=TIMEOUT):
    """How many such calls a process made that trained to its end; None if it was killed, then or at this moment."""
    call = [sys.executable, __file__, "--train", str(folder), recipe, str(die)]
    paths = os.pathsep.join(path for path in sys.path if path)
    settings = os.environ | {"PYTHONPATH": paths, "PYTHONWARNINGS": "error", "NUMBA_NUM_THREADS": "1"}
    try:
        done = subprocess.run(call, capture_output=True, text=True, env=settings, timeout=moment)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode not in (0, -signal.SIGKILL):
        raise Failed(f"{recipe}: ended with {done.returncode}: {done.stderr[-2000:]}")
    return None if done.returncode else int(done.stdout.split()[-1])


def state(folder):
    """All that the checkpoints last and best of a training hold, but for OTHERS."""

    def timeless(value):
        if isinstance(value, dict):
            return {name: timeless(entry) for name, entry in value.items() if name not in OTHERS}
        return [timeless(entry) for entry in value] if isinstance(value, list) else value

    found = {"leftovers": sorted(path.name for path in Path(folder).rglob(".partial-*"))}
    for place in sorted({path.parent for path in Path(folder).glob("*/checkpoint-*.safetensors")}):
        found[place.name, "state"] = timeless(state_of(place))
        found[place.name, "tensors"] = {name: array.tobytes() for name, array in tensors_of(place).items()}
    return found


def broken(folder, recipe, kills, draw, seconds, calls, counts):
    """Train to the end, killed on the way for as long as there are kills left."""
    while counts["kills"] < kills:
        die = draw.choice([0, draw.randrange(1, calls)])
        moment = TIMEOUT if die else draw.uniform(seconds / 3, seconds)  # it takes a third of them to begin
        if run(folder, recipe, die, moment) is not None:
            return
        counts["kills"] += 1
        counts["while saving"] += die > 0
        if checkpoint.exists(folder / "last") and checkpoint.find(folder / "last")[2]:
            raise Failed(f"{recipe}: a kill damaged the newest checkpoint")
    run(folder, recipe)


def tried(folder, recipe, kills, draw):
    """What was counted in as many kills of trainings by a recipe."""
    counts, begin = collections.Counter(), time.perf_counter()
    calls, seconds = run(folder / "unbroken", recipe), time.perf_counter() - begin
    wanted = state(folder / "unbroken")
    while counts["kills"] < kills:
        counts["trainings"] += 1
        place = folder / f"training {counts['trainings']}"
        broken(place, recipe, kills, draw, seconds, calls, counts)
        if (found := state(place)) != wanted:
            names = [name for name in wanted if found.get(name) != wanted[name]]
            raise Failed(f"{recipe}: training {counts['trainings']} ended with other {names}")
    return counts


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="in all; default 20")
    parser.add_argument("--seed", type=int, default=0, help="by which moments are drawn")
    parser.add_argument("--write", action="store_true", help="keep the counts in results/kills.json")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.train:
        folder, recipe, die = options.train
        return child(folder, recipe, int(die))
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as place:
        for number, recipe in enumerate(RECIPES):
            share, draw = len(range(number, options.kills, len(RECIPES))), random.Random(f"{options.seed} {recipe}")
            try:
                counts += tried(Path(place) / recipe, recipe, share, draw)
            except Failed as error:
                print(error)
                return 1
    checked = f"{counts['kills']} times SIGKILL in {counts['trainings']} trainings by {len(RECIPES)} recipes"
    checked += f", {counts['while saving']} while saving"
    found = "all end bit for bit as unbroken ones"
    print(f"{checked}: {found}")
    if options.write:
        store("kills", checked, found, f"python tests/reliability/kills.py --kills {options.kills}", seed=options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
