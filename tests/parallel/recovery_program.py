"""Trainings whose bits must depend neither on who shares the work nor on what goes wrong once.

python tests/parallel/recovery_program.py FOLDER [KIND,KIND... [FAULT]]

KIND is one of KINDS. FAULT is WHAT:RANK:STEP, done by that rank at that step of the first attempt. For each kind rank 0
prints the hash of weights, buffers, state of the optimiser and history; FOLDER/KIND/times holds when things were.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import minigrad
from minigrad import checkpoint, data, nn, optim, parallel
from minigrad.train import Callback, History, fit

SHARDS, EPOCHS, EVERY = 8, 3, 3
KINDS = {  # (optimiser, bytes of a bucket, whether its state is divided, options of fit)
    "sgd": ("SGD", 2000, False, {}),
    "adam": ("Adam", None, False, {}),
    "zero": ("Adam", 2000, True, {}),
    "clipped": ("Adam", 4000, True, {"clip": 0.1}),
    "accumulated": ("SGD", None, True, {"accumulate": 2}),
}
OPTIMIZERS = {"SGD": {"lr": 0.05, "momentum": 0.9}, "Adam": {"lr": 3e-3}}
told = []  # signals that ask this process to leave


class Keeper(Callback):
    """Writes checkpoints, does the fault, and leaves when told to."""

    def __init__(self, folder, fault, **parts):
        self.folder, self.parts, self.world = folder, parts, parts["model"].world
        what, rank, step = (fault or "none:-1:-1").split(":")
        first = os.environ.get("MINIGRAD_ATTEMPT", "0") == "0"
        self.fault = (what, int(step)) if first and int(rank) == self.world.rank else (None, -1)

    def note(self, what):
        with open(self.folder / "times", "a") as file:
            file.write(f"{time.time()} {what}\n")

    def save(self, history):
        checkpoint.save(self.folder / "checkpoint", **self.parts, history=history, keep=2, world=self.world)

    def restore(self, history):
        """Go on from the newest checkpoint that is whole."""
        there = self.world.rank == 0 and checkpoint.exists(self.folder / "checkpoint")
        if self.world.broadcast_bytes(b"1" if there else b""):
            rest = {"history": history, "generator": minigrad.default_generator, "world": self.world}
            checkpoint.load(self.folder / "checkpoint", **self.parts, **rest)

    def on_step(self, history):
        if self.world.rank == 0:
            self.note(f"step {history.steps} of {self.world.size}")
        if history.steps % EVERY == 0:
            self.save(history)
        what, step = self.fault
        if history.steps == step:
            self.note("fault")
            FAULTS[what](self)

    def stop(self, history):
        return bool(told)


def error(keeper):
    raise ValueError("a mistake of one rank")


def tear(keeper):
    """The disk loses the end of the newest file, and the power goes."""
    files = (keeper.folder / "checkpoint").glob("*.safetensors")
    file = max(files, key=lambda file: file.stat().st_mtime_ns)
    file.write_bytes(file.read_bytes()[:1000])
    FAULTS["kill"](keeper)


FAULTS = {
    "kill": lambda keeper: os.kill(os.getpid(), signal.SIGKILL),
    "halt": lambda keeper: os.kill(os.getpid(), signal.SIGSTOP),
    "leave": lambda keeper: os.kill(os.getpid(), signal.SIGTERM),
    "error": error,
    "exit": lambda keeper: sys.exit(3),
    "wait": lambda keeper: time.sleep(2),
    "tear": tear,
}


def trained(world, folder, kind, fault=None):
    """A line with the hash, or with the step at which it was left."""
    name, bucket_bytes, divided, options = KINDS[kind]
    minigrad.manual_seed(0)
    train, test = data.digits()
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.25), nn.Linear(4 * 36, 10)
    )
    model = parallel.DataParallel(network, world, shards=SHARDS, bucket_bytes=bucket_bytes)
    images = train.subset(slice(292))  # so that the last batch is of 4
    loader = data.Loader(images, 48, shuffle=True, transform=data.PadCrop(1), sampler=model.sampler)
    optimizer = getattr(optim, name)(model.parameters(), **OPTIMIZERS[name])
    if divided:
        optimizer = parallel.ShardedOptimizer(optimizer, model)
    keeper, history = Keeper(Path(folder), fault, model=model, optimizer=optimizer, loader=loader), History()
    keeper.restore(history)
    options = options | {"test": data.Loader(test, 200), "history": history, "callbacks": [keeper]}
    fit(model, loader, optimizer, EPOCHS, **options)
    if len(history) < EPOCHS:
        keeper.save(history)
        return f"stopped at {history.steps}"
    digest = hashlib.sha256(checkpoint.weights_hash(model).encode())
    for _, entries in sorted(optimizer.state_dict()["state"].items()):
        for name, value in sorted(entries.items()):
            digest.update(name.encode() + (value.tobytes() if hasattr(value, "tobytes") else str(value).encode()))
    digest.update(repr([history[name] for name in ("loss", "accuracy", "test_loss", "test_accuracy")]).encode())
    return f"hash {digest.hexdigest()}"


def all_of(world, folder, kinds, fault=None):
    """The lines of several kinds, each in a folder of its own."""
    lines = []
    for kind in kinds:
        if world.rank == 0:
            (Path(folder) / kind).mkdir(exist_ok=True)
        world.barrier()
        lines.append(trained(world, Path(folder) / kind, kind, fault))
    return lines


def main(folder, kinds="sgd", fault=None):
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    with parallel.init() as world:
        lines = all_of(world, folder, kinds.split(","), fault)
        if world.rank == 0:
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
