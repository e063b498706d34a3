"""Trainings that are killed at random moments, go on, and must end with the bits of one that was not.

    python tests/reliability/kills.py --kills 20              # a few
    python tests/reliability/kills.py --kills 200 --write     # and keep the counts in results/kills.json

For each recipe one training runs to its end, and says when it saved. Others are killed by SIGKILL, go on, are killed
again, until all kills are spent; then each goes on to its end. Half of the kills come at a random moment, half come
from the process itself while it saves: before or after an fsync, a rename or a removal.
No kill may damage the newest checkpoint. After some it is torn all the same, as by a disk that lost what it had
promised to keep: the next process must say so and go on from the one before. Weights, the state of the optimiser,
history, random numbers and all else in the last checkpoint must equal those of the unbroken training, but for times;
else it is printed, and the exit status is 1.
"""

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

if not __package__:
    sys.path[:1] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "kernels")]

from minigrad import checkpoint  # noqa: E402
from minigrad.cli import main as minigrad  # noqa: E402
from tests.reliability.results import store  # noqa: E402
from tests.train.checkpoint_parts import file_of, state_of, tensors_of  # noqa: E402

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
TORN_SHARE = 0.15

# ---- a training, in a process of its own -----------------------------------------------------------------------------


def words_of(recipe):
    """What `minigrad` is called with."""
    return [*WORDS.split(), *RECIPES[recipe].split()]


def child(folder, recipe, die):
    """Go on from the newest checkpoint that is whole, or begin, and say what happens, with the seconds since then.

    die     at which point of saving to kill itself: calls of the operating system are counted as they begin and end
    """
    began, points, saving = time.perf_counter(), 0, False

    def say(what):
        os.write(1, f"{time.perf_counter() - began:.6f} {what}\n".encode())

    def point():
        nonlocal points
        points += saving
        if saving and points == die:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(real):
        def call(*arguments, **options):
            point()
            made = real(*arguments, **options)
            point()
            return made

        return call

    def save(*arguments, real=checkpoint.save, **options):
        nonlocal saving
        saving = True
        say("save")
        real(*arguments, **options)
        saving = False
        say("saved")

    def find(place, real=checkpoint.find):
        number, damage = real(place)
        if damage:
            say(f"CheckpointWarning {damage}")
        return number, damage

    checkpoint.save, checkpoint.find = save, find
    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, around(getattr(os, name)))
    say("begins")
    status = minigrad([*words_of(recipe), "--continue", "--out", folder])
    say(f"points {points}")
    return status


# ---- the process that kills ------------------------------------------------------------------------------------------


class Failed(Exception):
    """A training that did not do what it must."""


def run(folder, recipe, die=0, moment=None):
    """(exit status, [(seconds, words)]) of a process that trains; it is killed so many seconds after it began."""
    call = [sys.executable, __file__, "--train", str(folder), recipe, str(die)]
    paths = os.pathsep.join(path for path in sys.path if path)
    settings = os.environ | {"PYTHONPATH": paths, "PYTHONWARNINGS": "error", "NUMBA_NUM_THREADS": "1"}
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings) as process:
        said = process.stdout.readline()
        if moment is not None:
            time.sleep(moment)
            process.kill()
        rest, errors = process.communicate(timeout=TIMEOUT)
    if process.returncode not in (0, -signal.SIGKILL):
        raise Failed(f"{recipe}: ended with {process.returncode}: {errors.decode()[-2000:]}")
    lines = [line.split(" ", 1) for line in (said + rest).decode().split("\n") if line[:1].isdigit() and " " in line]
    return process.returncode, [(float(seconds), words) for seconds, words in lines]


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


def torn(folder, draw):
    """Damage the newest checkpoint where there is one before it, now and then; whether that was done."""
    if draw.random() > TORN_SHARE or len(checkpoint.numbers(folder)) < 2:
        return False
    path = file_of(folder)
    content = bytearray(path.read_bytes())
    flipped = draw.randrange(len(content))
    content[flipped] ^= 1 << draw.randrange(8)
    path.write_bytes(draw.choice([content, content[:flipped], bytes(len(content))]))
    return True


def is_damaged(folder):
    return checkpoint.exists(folder) and bool(checkpoint.find(folder)[1])


def chain(folder, recipe, events, kills, draw, counts):
    """One training that is killed at most so often, in the first third of it, until it ends."""
    killed, damaged, last = 0, False, folder / "last"
    ended, points = events[-1][0], int(events[-1][1].removeprefix("points "))
    while True:
        moment, die = draw.uniform(0, ended / 3), draw.randrange(1, points // 3)
        how = draw.choice([{"moment": moment}, {"die": die}]) if killed < kills else {}
        status, said = run(folder, recipe, **how)
        words = [words for _, words in said]
        warned = any(word.startswith("CheckpointWarning") for word in words)
        if warned != damaged:
            what = "was not noticed" if damaged else "came of a kill alone"
            raise Failed(f"{recipe}: a torn checkpoint {what}: {words}")
        counts["from the one before"] += warned
        if status == 0:
            return
        killed += 1
        counts["kills"] += 1
        counts["while saving"] += [word for word in words if word in ("save", "saved")][-1:] == ["save"]
        if not damaged and is_damaged(last):
            raise Failed(f"{recipe}: a kill damaged the newest checkpoint: {words}")
        damaged = (damaged and is_damaged(last)) | torn(last, draw)  # until the next one is there


def tried(folder, recipe, kills, draw, progress):
    """What was counted in as many kills of trainings by a recipe."""
    counts = collections.Counter()
    _, events = run(folder / "unbroken", recipe)
    wanted = state(folder / "unbroken")
    if len(wanted) == 1 or not events[-1][1].startswith("points"):
        raise Failed(f"{recipe}: the unbroken training did not end: {events}")
    while (left := kills - counts["kills"]) > 0:
        place = folder / f"training {counts['trainings']}"
        chain(place, recipe, events, left, draw, counts)
        progress.update(left - kills + counts["kills"])
        counts["trainings"] += 1
        found = state(place)
        if found != wanted:
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
    with tempfile.TemporaryDirectory() as place, tqdm(total=options.kills, desc="kills", disable=None) as progress:
        for number, recipe in enumerate(RECIPES):
            share, draw = len(range(number, options.kills, len(RECIPES))), random.Random(f"{options.seed} {recipe}")
            try:
                counts += tried(Path(place) / recipe, recipe, share, draw, progress)
            except (Failed, subprocess.TimeoutExpired) as error:
                print(error)
                return 1
    checked = f"{counts['kills']} times SIGKILL in {counts['trainings']} trainings by {len(RECIPES)} recipes"
    checked += f", {counts['while saving']} while saving"
    found = f"all end bit for bit as unbroken ones; {counts['from the one before']} went on from the checkpoint before"
    print(f"{checked}: {found}")
    if options.write:
        store("kills", checked, found, f"python tests/reliability/kills.py --kills {options.kills}", seed=options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
