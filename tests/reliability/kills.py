"""Trainings that are killed at random moments, go on, and must end with the bits of one that was not.

    python tests/reliability/kills.py --kills 20              # a few
    python tests/reliability/kills.py --kills 200 --write     # and keep the counts in results/kills.json

For each recipe of kill_program.py one training runs to its end, and says when it made steps and saved. Others are
killed by SIGKILL, go on, are killed again, until all kills are spent; then each goes on to its end. Half of the kills
come at a random moment of the recorded times, one of two of these while a checkpoint was being written then; half come
from the process itself at a system call of saving: before, amid or after a write, an fsync, a rename or a removal. No
kill may damage the newest checkpoint. After some it is torn all the same, as by a disk that lost what it had promised
to keep: the next process must say so and go on from the one before. Weights, the state of the optimiser, history,
random numbers and all else in the last checkpoint must equal those of the unbroken training, but for times; else it is
printed, and the exit status is 1.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

if not __package__:
    sys.path[:1] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "kernels")]

from minigrad import checkpoint  # noqa: E402
from tests.reliability.kill_program import RECIPES  # noqa: E402
from tests.reliability.results import store  # noqa: E402
from tests.train.checkpoint_parts import file_of, state_of, tensors_of  # noqa: E402

PROGRAM = Path(__file__).with_name("kill_program.py")
TIMES = {"seconds", "images_per_second", "timed_images"}
CALLS = {"write": 1, "fsync": 2, "replace": 1, "unlink": 1}  # of a save, at most
TIMEOUT = 300
TORN_SHARE = 0.15


class Failed(Exception):
    """A training that did not do what it must."""


def environment():
    paths = os.pathsep.join(path for path in sys.path if path)
    return os.environ | {"PYTHONPATH": paths, "PYTHONWARNINGS": "error", "NUMBA_NUM_THREADS": "1"}


def run(folder, recipe, die=None, moment=None):
    """(exit status, [(seconds, words)]) of a process that trains; it is killed so many seconds after it began."""
    command = [sys.executable, str(PROGRAM), str(folder), recipe, *(["--die", die] if die else [])]
    with tempfile.TemporaryFile() as errors:
        pipes = {"stdout": subprocess.PIPE, "stderr": errors, "env": environment()}
        with subprocess.Popen(command, **pipes) as process:
            first = process.stdout.readline()
            if moment is not None:
                time.sleep(moment)
                process.send_signal(signal.SIGKILL)
            said = first + process.communicate(timeout=TIMEOUT)[0]
        if process.returncode not in (0, -signal.SIGKILL):
            errors.seek(0)
            raise Failed(f"{recipe}: ended with {process.returncode}: {errors.read().decode()[-2000:]}")
    lines = [line.split(" ", 1) for line in said.decode().split("\n") if line[:1].isdigit() and " " in line]
    return process.returncode, [(float(seconds), words) for seconds, words in lines]


def state(folder):
    """All that the last checkpoint of a training holds, but times, and that of the best where there is one."""

    def timeless(value):
        if isinstance(value, dict):
            return {name: timeless(entry) for name, entry in value.items() if name not in TIMES}
        return [timeless(entry) for entry in value] if isinstance(value, list) else value

    found = {"leftovers": sorted(path.name for path in Path(folder).rglob(".partial-*"))}
    for place in sorted({path.parent for path in Path(folder).glob("*/checkpoint-*.safetensors")}):
        found[place.name, "state"] = timeless(state_of(place))
        found[place.name, "tensors"] = {name: array.tobytes() for name, array in tensors_of(place).items()}
    return found


def tear(folder, draw):
    """Damage the newest checkpoint where there is one before it; whether that was done."""
    if len(checkpoint.numbers(folder)) < 2:
        return False
    path = file_of(folder)
    content = bytearray(path.read_bytes())
    how = draw.choice(["cut", "zeros", "bit"])
    if how == "bit":
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    made = {"cut": content[: draw.randrange(len(content))], "zeros": bytes(len(content)), "bit": content}
    path.write_bytes(made[how])
    return True


def moment_of(events, draw):
    """A moment of the first third of a training, one of two times while it saved."""
    spans = [(began, ended) for (began, words), (ended, _) in zip(events, events[1:], strict=False) if words == "save"]
    early = spans[: max(2, len(spans) // 3)]
    return draw.uniform(*draw.choice(early)) if draw.random() < 0.5 else draw.uniform(0, early[-1][1])


def step_of(draw):
    """A system call of one of the next saves, for --die."""
    call = draw.choice(list(CALLS))
    when = draw.choice(["before", "amid", "after"] if call == "write" else ["before", "after"])
    return f"{call}:{draw.randrange(1, 6)}:{draw.randrange(1, CALLS[call] + 1)}:{when}"


def chain(folder, recipe, events, kills, draw, counts):
    """One training that is killed at most so often until it ends; how often it was."""
    killed, torn = 0, False
    while True:
        how = {}
        if killed < kills:
            how = {"moment": moment_of(events, draw)} if draw.random() < 0.5 else {"die": step_of(draw)}
        status, said = run(folder, recipe, **how)
        words = [words for _, words in said]
        warned = any(word.startswith("CheckpointWarning") for word in words)
        if warned != torn:
            raise Failed(
                f"{recipe}: a torn checkpoint {'was not noticed' if torn else 'came of a kill alone'}: {words}"
            )
        counts["from the one before"] += warned
        if status == 0:
            return killed
        killed += 1
        saving = [word for word in words if word in ("save", "saved")][-1:] == ["save"]
        counts["kills"] += 1
        counts["while saving"] += saving
        counts["at a named call"] += "die" in how
        if not torn and checkpoint.exists(folder / "last") and checkpoint.find(folder / "last")[1]:
            raise Failed(f"{recipe}: a kill damaged the newest checkpoint: {words}")
        torn = torn and bool(checkpoint.find(folder / "last")[1])  # until the next one is there
        torn |= draw.random() < TORN_SHARE and tear(folder / "last", draw)


def tried(folder, recipe, kills, seed, progress):
    """(counts, what went wrong) of as many kills of trainings by a recipe."""
    draw, counts = random.Random(f"{seed} {recipe}"), collections.Counter()
    try:
        _, events = run(folder / "unbroken", recipe)
        wanted = state(folder / "unbroken")
        if len(wanted) == 1 or events[-1][1] != "done":
            raise Failed(f"{recipe}: the unbroken training did not end: {events}")
        while (left := kills - counts["kills"]) > 0:
            place = folder / f"training {counts['trainings']}"
            before = counts["kills"]
            chain(place, recipe, events, left, draw, counts)
            counts["trainings"] += 1
            progress.update(counts["kills"] - before)
            found = state(place)
            if found != wanted:
                names = [name for name in wanted if found.get(name) != wanted[name]]
                raise Failed(f"{recipe}: training {counts['trainings']} ended with other {names}")
    except (Failed, subprocess.TimeoutExpired) as error:
        return counts, [str(error)]
    return counts, []


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="in all; default 20")
    parser.add_argument("--seed", type=int, default=0, help="by which moments are drawn")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time; default 2")
    parser.add_argument("--write", action="store_true", help="keep the counts in results/kills.json")
    options = parser.parse_args(arguments)
    shares = [len(range(number, options.kills, len(RECIPES))) for number in range(len(RECIPES))]
    with (
        tempfile.TemporaryDirectory() as place,
        tqdm(total=options.kills, desc="kills", disable=None) as progress,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        folders = [Path(place) / str(number) for number in range(len(RECIPES))]
        for folder in folders:
            folder.mkdir()
        rest = [options.seed] * len(RECIPES), [progress] * len(RECIPES)
        made = list(pool.map(tried, folders, RECIPES, shares, *rest))
    counts, rows, wrong = collections.Counter(), {}, []
    for recipe, (found, faults) in zip(RECIPES, made, strict=True):
        counts, rows[recipe], wrong = counts + found, dict(found), wrong + faults
        print(f"{recipe:14}", *(f"{name} {number:4}" for name, number in sorted(found.items())))
    print(*wrong, sep="\n" if wrong else "")
    checked = f"{counts['kills']} times SIGKILL in {counts['trainings']} trainings by {len(RECIPES)} recipes"
    checked += f", {counts['while saving']} while saving"
    text = f"all end bit for bit as unbroken ones; {counts['from the one before']} went on from the checkpoint before"
    print(f"{checked}: {'some failed' if wrong else text}")
    if options.write and not wrong:
        command = f"python tests/reliability/kills.py --kills {options.kills}"
        store("kills", checked, text, command, recipes=rows, seed=options.seed)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
