"""Damaged checkpoints, weights and settings: only the documented errors leave, and what is refused changes nothing.

    python tests/reliability/fuzz.py [TARGET ...] [--seconds 20] [--seed N] [--write]

Valid files are mutated by what knows their format, so that the damage gets past checksums and into the reader. Another
error ends the command with the number of the input, which the same seed makes again. test_fuzzing.py runs some inputs,
and all that have ever brought out another error.
"""

import argparse
import contextlib
import copy
import faulthandler
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

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

SLOW = 10  # seconds of one input, at most

# ---- mutations: (bytes, random.Random) -> bytes ----------------------------------------------------------------------

NUMBERS = 0, 1, -1, 2, 0.5, 1e300, float("nan"), float("inf"), 2**32, 2**63, -(2**63), 10**400
WORDS = "", "a", "0", "float32", "F32", "F8_E4M3", "../../x", "\x00", "\ud800", "lr"
VALUES = None, True, False, *NUMBERS, *WORDS, [], {}, [[]], [1, 2, 3], ["a"], {"a": 1}, {"__tensor__": "a"}, [None]


def plain(data, draw):
    """Bytes that are inserted, left out or others."""
    content = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        at, count = draw.randrange(len(content) + 1), draw.choice((1, 2, 4, 64))
        content[at : at + draw.choice((0, count))] = draw.choice((b"", draw.randbytes(count), b"\xff" * count))
    return bytes(content)


def by_json(data, draw):
    """Entries that are left out, renamed or others; now and then what is no JSON any more."""
    try:
        return plain(data, draw) if draw.random() < 0.2 else json.dumps(changed(json.loads(data), draw)).encode()
    except (ValueError, RecursionError):
        return plain(data, draw)


def changed(value, draw):
    """The JSON value with a node of it replaced; the nodes are chosen evenly by depth."""
    if isinstance(value, dict | list) and value and draw.random() < 0.85:
        key, kind = draw.choice([*value] if isinstance(value, dict) else range(len(value))), draw.random()
        if kind < 0.08:
            del value[key]
        elif kind < 0.13 and isinstance(value, dict):
            value[draw.choice(("", "a", "0", key + key[:20]))] = value[key]
        else:
            value[key] = changed(value[key], draw)
        return value
    if isinstance(value, int | float) and draw.random() < 0.3:
        return draw.choice((-1, 1)) * value + draw.choice((0, 1, -1))
    return copy.deepcopy(draw.choice(VALUES))  # for it may be changed in turn


def by_safetensors(data, draw):
    """The header is mutated as JSON, and its length made right."""
    size = int.from_bytes(data[:8], "little")
    header = by_json(data[8 : 8 + size], draw)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


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


TARGETS = {  # name: (what prepares it, the mutation that knows its format, the error that may leave it)
    "weights": (weights, by_safetensors, WeightsError),
    "checkpoint-state": (state, by_json, CheckpointError),
    "checkpoint-tensors": (tensors, by_safetensors, CheckpointError),
    "config": (config, by_json, UsageError),
}

# ---- the command -----------------------------------------------------------------------------------------------------


def damaged(mutate, data, number, seed=0):
    """The input of a number."""
    draw = random.Random(f"{seed} {number}")
    for _ in range(draw.randrange(1, 4)):
        data = mutate(data, draw)
    return data


def tried(name, folder, seconds, seed):
    """How many inputs were read in so many seconds. Another error than the documented one ends it."""
    prepare, mutate, documented = TARGETS[name]
    valid, read = prepare(folder)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(SLOW, exit=True)
        try:
            read(damaged(mutate, valid, number, seed))
        except documented:
            pass
        except Exception as error:
            error.add_note(f"{name}: input {number} of seed {seed}")
            raise
        number += 1
    faulthandler.cancel_dump_traceback_later()
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=float, default=20, help="for each target (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="by which inputs are drawn")
    parser.add_argument("--write", action="store_true", help="keep the figures in results/fuzz.json")
    options = parser.parse_args()
    counts = {}
    for name in options.targets or TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            counts[name] = tried(name, Path(folder), options.seconds, options.seed)
        print(f"{name}: {counts[name]:,} inputs, no other error", flush=True)
    if options.write:
        checked = f"{len(counts)} readers of files on {sum(counts.values()):,} damaged inputs"
        found = "0 errors other than the documented ones"
        store("fuzz", checked, found, f"python tests/reliability/fuzz.py --seconds {options.seconds:g}", inputs=counts)


if __name__ == "__main__":
    main()
