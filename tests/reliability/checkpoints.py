"""Checkpoints that are damaged or hostile: each must be refused by one CheckpointError, and nothing may change.

    python tests/reliability/checkpoints.py            # all of it
    python tests/reliability/checkpoints.py --write    # and keep the counts in results/checkpoints.json

Flips every bit of every file of a small checkpoint, cuts each of these files at every length, flips a sample of the
bits of a large one (--bits, drawn anew by --seed), and runs all rows of tests/train/checkpoint_faults.py. What is
taken, or fails in another way, is printed, and the exit status is 1.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

if not __package__:
    sys.path[:1] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "kernels")]

from minigrad import checkpoint  # noqa: E402
from minigrad.checkpoint import CheckpointError  # noqa: E402
from tests.reliability.results import store  # noqa: E402
from tests.train.checkpoint_bits import Damaged, small  # noqa: E402
from tests.train.checkpoint_faults import FAULTS  # noqa: E402
from tests.train.checkpoint_parts import all_bits, everything, save_everything  # noqa: E402

UNITS = 1 << 18  # of the large network: 3 MiB of weights, as much for the optimiser


def tried(what, calls):
    """(how many calls were refused, what went wrong) of pairs (name, call), each of which must find a refusal."""
    refused, wrong = 0, []
    for name, call in tqdm(calls, what, disable=None, leave=False):
        try:
            call()
            refused += 1
        except Exception as error:
            wrong.append(f"{what}: {name}: {type(error).__name__}: {error}")
    print(f"{what:24} {refused:8,} refused, {len(wrong)} wrong")
    return refused, wrong


def every_bit(folder):
    damaged = Damaged(folder, small(folder))
    places = [(path, bit) for path, content in damaged.files.items() for bit in range(8 * len(content))]
    return [(f"{path.name}, bit {bit}", lambda p=path, b=bit: damaged.flip(p, b)) for path, bit in places]


def every_length(folder):
    damaged = Damaged(folder, small(folder))
    places = [(path, length) for path, content in damaged.files.items() for length in range(len(content))]
    return [(f"{path.name} of {length}", lambda p=path, n=length: damaged.cut(p, n)) for path, length in places]


def some_bits(folder, count, seed):
    damaged, draw = Damaged(folder, small(folder, UNITS)), random.Random(seed)
    paths = [draw.choice(list(damaged.files)) for _ in range(count)]
    places = [(path, draw.randrange(8 * len(damaged.files[path]))) for path in paths]
    return [(f"{path.name}, bit {bit}", lambda p=path, b=bit: damaged.flip(p, b)) for path, bit in places]


def hostile(folder):
    def run(number, damage, words):
        place = folder / str(number)
        save_everything(place, everything())
        damage(place)
        others = everything(seed=1, steps=2)
        before = all_bits(others)
        try:
            checkpoint.load(place, **others)
        except CheckpointError as error:
            assert all(word in str(error) for word in words.split("; ")), f"says {error}"
            assert all_bits(others) == before, "something changed"
            return
        raise AssertionError("it was taken")

    return [(name, lambda n=n, row=row: run(n, *row)) for n, (name, row) in enumerate(FAULTS.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bits", type=int, default=500, help="flipped bits of the large checkpoint; default 500")
    parser.add_argument("--seed", type=int, default=0, help="by which they are drawn")
    parser.add_argument("--write", action="store_true", help="keep the counts in results/checkpoints.json")
    options = parser.parse_args()
    kinds = {
        "every bit": every_bit,
        "every length": every_length,
        "bits of a large one": lambda folder: some_bits(folder, options.bits, options.seed),
        "hostile and unfitting": hostile,
    }
    counts, wrong = {}, []
    for what, made in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            counts[what], faults = tried(what, made(Path(folder)))
        wrong += faults
    print(*wrong, sep="\n")
    bits = counts["every bit"] + counts["bits of a large one"]
    checked = (
        f"{sum(counts.values()) + len(wrong):,} damaged checkpoints: {bits:,} with one flipped bit, "
        f"{counts['every length']:,} cut short, {counts['hostile and unfitting']} hostile or of something else"
    )
    found = f"{sum(counts.values()):,} refused by one CheckpointError each, nothing changed"
    print(f"{checked}: {found}")
    if options.write and not wrong:
        store("checkpoints", checked, found, "python tests/reliability/checkpoints.py", refused=counts)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
