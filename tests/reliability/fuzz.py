"""Damaged checkpoints, weights and settings: only the documented errors leave, and what is refused changes nothing.

    python tests/reliability/fuzz.py [TARGET ...] [--seconds 20] [--seed N] [--write]

Valid files are mutated by what knows their format, so that the damage gets past checksums and into the reader. Each
kind of failure is shown once, with the number of the input, which the same seed makes again. test_fuzzing.py runs some
inputs, and all that have ever brought out another error.
"""

import argparse
import contextlib
import copy
import json
import random
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save as safetensors_of

if not __package__:
    sys.path[:1] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "kernels")]

from minigrad import checkpoint  # noqa: E402
from minigrad.checkpoint import CheckpointError, WeightsError, load_weights  # noqa: E402
from minigrad.cli.run import CONFIG, Run  # noqa: E402
from minigrad.cli.settings import BY_DATA, Settings, UsageError  # noqa: E402
from tests.reliability.results import store  # noqa: E402
from tests.train import checkpoint_parts as whole  # noqa: E402

LONGEST = 1 << 16  # bytes of an input
SLOW = 10  # seconds of one input, at most

# ---- mutations: (bytes, random.Random) -> bytes ----------------------------------------------------------------------

NUMBERS = 0, 1, -1, 2, 7, 0.5, -0.0, 1e300, float("nan"), float("inf"), 2**31, 2**32, 2**63, -(2**63), 2**64, 10**400
WORDS = "", "a", "0", "1e5", "float32", "F32", "BF16", "F8_E4M3", "../../x", "\x00", "\ud800", "lr"
VALUES = None, True, False, *NUMBERS, *WORDS, [], {}, [[]], [1, 2, 3], ["a"], {"a": 1}, {"tensor": "a"}, [None]


def plain(data, draw):
    """Bytes that are inserted, left out, repeated or others."""
    content = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        at, count = draw.randrange(len(content) + 1), draw.choice((1, 2, 4, 64))
        number = struct.pack(draw.choice("<>") + "I", draw.choice((0, 1, 2**31, 2**32 - 1)))
        content[at : at + draw.choice((0, count))] = draw.choice((b"", draw.randbytes(4), number, content[:count]))
    return bytes(content[:LONGEST])


def by_json(data, draw):
    """Entries that are left out, renamed or others."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if value is None or draw.random() < 0.2:
        return plain(data, draw)
    made = json.dumps(changed(value, draw)).encode()
    if draw.random() < 0.02:
        depth = draw.choice((200, 1000, 20000))
        made = made.replace(b"null", b"[" * depth + b"]" * depth, 1)
    return made[:LONGEST]


def changed(value, draw):
    """The JSON value with a node of it replaced; the nodes are chosen evenly by depth."""
    if isinstance(value, dict | list) and value and draw.random() < 0.85:
        key, kind = draw.choice([*value] if isinstance(value, dict) else range(len(value))), draw.random()
        if kind < 0.08:
            del value[key]
        elif kind < 0.13 and isinstance(value, dict):
            value[draw.choice(("", "a", "0", "tensor", key + key[:20]))] = value[key]
        else:
            value[key] = changed(value[key], draw)
        return value
    if isinstance(value, int | float) and draw.random() < 0.3:
        return draw.choice((-1, 1)) * value + draw.choice((0, 1, -1))
    if isinstance(value, str) and draw.random() < 0.3:
        return value[: draw.randrange(len(value) + 1)] + draw.choice(("", "a", "0", "."))
    return copy.deepcopy(draw.choice(VALUES))  # for it may be changed in turn


def by_safetensors(data, draw):
    """The header is mutated as JSON, and its length made right."""
    if draw.random() < 0.2 or len(data) < 8:
        return plain(data, draw)
    size = struct.unpack("<Q", data[:8])[0]
    header = by_json(data[8 : 8 + size], draw)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


# ---- readers: an empty folder -> (a valid input, a function of bytes that reads them) --------------------------------


def weights(folder):
    def read(data):
        (folder / "weights.safetensors").write_bytes(data)
        return load_weights(folder / "weights.safetensors")

    arrays = {"weight": np.ones((2, 3), np.float32), "count": np.array(3, np.int64), "mask": np.array([True, False])}
    return safetensors_of(arrays), read


def loading(folder):
    """(the file of a checkpoint, a function that loads it into parts, which must be as before where it refuses)."""

    def load():
        parts = whole.everything(steps=1)
        before = whole.told(parts)
        try:
            return checkpoint.load(folder, **parts)
        except CheckpointError:
            np.testing.assert_equal(whole.told(parts), before, "a checkpoint that was refused changed something")
            raise

    checkpoint.save(folder, **whole.everything(steps=1), extra={"note": [1, 2.5, None]})
    return whole.file_of(folder), load


def state(folder):
    """The state of a checkpoint that vouches for itself, so that damage is met behind the SHA-256."""
    path, load = loading(folder)
    metadata, arrays = whole.metadata_of(path.read_bytes()), whole.tensors_of(folder)

    def read(data):
        path.write_bytes(whole.sealed(arrays, metadata | {"state": data.decode("utf-8", "replace")}))
        return load()

    return json.dumps(whole.state_of(folder)).encode(), read


def tensors(folder):
    path, load = loading(folder)

    def read(data):
        path.write_bytes(data)
        with contextlib.suppress(Exception):  # what is no file of tensors cannot be sealed
            path.write_bytes(whole.sealed(whole.tensors_of(folder), whole.metadata_of(data)))
        return load()

    return path.read_bytes(), read


def config(folder):
    """What a run keeps of its settings."""
    checkpoint.save(folder / "last", whole.everything()["model"])
    images = {"shape": (1, 8, 8), "classes": ("a", "b", "c"), "mean": (0.5,), "std": (0.25,)}
    settings = Settings(**BY_DATA["digits"] | images | {"data": "digits", "model": "mlp"})

    def read(data):
        (folder / CONFIG).write_bytes(data)
        Run.of(folder)

    return json.dumps({"settings": asdict(settings), "command": ["minigrad"], "ranks": 1}).encode(), read


class Target(NamedTuple):
    """A reader, the mutation that knows its format, and the errors that may leave it."""

    prepare: Callable
    mutate: Callable
    errors: tuple


TARGETS = {
    "weights": Target(weights, by_safetensors, (WeightsError,)),
    "checkpoint-state": Target(state, by_json, (CheckpointError,)),
    "checkpoint-tensors": Target(tensors, by_safetensors, (CheckpointError,)),
    "config": Target(config, by_json, (UsageError,)),
}

# ---- the command -----------------------------------------------------------------------------------------------------


def damaged(target, data, number, seed=0):
    """The input of a number."""
    draw = random.Random(f"{seed} {number}")
    for _ in range(draw.randrange(1, 4)):
        data = target.mutate(data, draw)
    return data


def tried(target, folder, seconds, seed):
    """(how many inputs, [what went wrong, each kind once]) of so many seconds."""
    valid, read = target.prepare(folder)
    end, number, wrong = time.monotonic() + seconds, 0, {}
    while time.monotonic() < end:
        signal.alarm(SLOW)
        try:
            read(damaged(target, valid, number, seed))
        except target.errors:
            pass
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = "".join(traceback.format_exception(error)[-6:])
            wrong.setdefault((type(error), place.filename, place.lineno), f"{text}input {number} of seed {seed}")
        number += 1
    signal.alarm(0)
    return number, [*wrong.values()]


def too_slow(*_):
    raise TimeoutError(f"an input takes longer than {SLOW} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=float, default=20, help="for each target (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="by which inputs are drawn")
    parser.add_argument("--write", action="store_true", help="keep the figures in results/fuzz.json")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, too_slow)
    counts, failures = {}, 0
    for name in options.targets or TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            counts[name], wrong = tried(TARGETS[name], Path(folder), options.seconds, options.seed)
        failures += len(wrong)
        print(f"{name}: {counts[name]:,} inputs, {len(wrong)} failures", *wrong, sep="\n", flush=True)
    if options.write:
        checked = f"{len(counts)} readers of files on {sum(counts.values()):,} damaged inputs"
        found = f"{failures} errors other than the documented ones"
        store("fuzz", checked, found, f"python tests/reliability/fuzz.py --seconds {options.seconds:g}", inputs=counts)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
