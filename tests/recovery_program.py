"""A training on many ranks in which something goes wrong once: what the tests of recovery start.

python tests/recovery_program.py FOLDER [FAULT [sgd|adam [SECONDS]]]

FAULT is KIND:RANK:STEP, done by that rank at that step of the first attempt; SECONDS are slept at each step. Rank 0
prints the hash of weights and state of the optimiser at the end; FOLDER/times holds when things were.
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


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.25), nn.Linear(4 * 36, 10)
    )  # fmt: skip


class Keeper(Callback):
    """Writes checkpoints, does the fault, and leaves when told to."""

    def __init__(self, folder, fault, pause, model, optimizer, loader):
        self.folder, self.checkpoints, self.world = Path(folder), Path(folder) / "checkpoint", model.world
        self.model, self.optimizer, self.loader = model, optimizer, loader
        kind, rank, step = (fault or "none:-1:-1").split(":")
        first = os.environ.get("MINIGRAD_ATTEMPT", "0") == "0"
        self.fault = (kind, int(step)) if first and int(rank) == self.world.rank else (None, -1)
        self.told, self.pause = False, pause
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "told", True))

    def note(self, what):
        with open(self.folder / "times", "a") as file:
            file.write(f"{time.time()} {what}\n")

    def save(self, history):
        how = {"history": history, "loader": self.loader, "keep": 2, "world": self.world}
        checkpoint.save(self.checkpoints, self.model, self.optimizer, **how)

    def restore(self, history):
        """Go on from the newest checkpoint that is whole."""
        there = self.world.rank == 0 and checkpoint.exists(self.checkpoints)
        if self.world.broadcast_bytes(b"1" if there else b""):
            rest = {"history": history, "loader": self.loader, "generator": minigrad.default_generator}
            checkpoint.load(self.checkpoints, self.model, self.optimizer, **rest, world=self.world)

    def on_step(self, history):
        if self.world.rank == 0:
            self.note(f"step {history.steps} of {self.world.size}")
        if history.steps % EVERY == 0:
            self.save(history)
        time.sleep(self.pause)
        kind, step = self.fault
        if history.steps == step:
            self.note("fault")
            getattr(self, kind)()

    def stop(self, history):
        return self.told

    # ---- faults ----------------------------------------------------------------------------------------------------

    def kill(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def halt(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def error(self):
        raise ValueError("a mistake of one rank")

    def exit(self):
        sys.exit(3)

    def hang(self):
        time.sleep(1000)

    def tear(self):
        """The disk loses the end of the newest file, and the power goes."""
        file = max((self.checkpoints).glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
        file.write_bytes(file.read_bytes()[:1000])
        self.kill()

    def preempt(self):
        os.kill(os.getpid(), signal.SIGTERM)


def main(folder, fault=None, kind="sgd", pause=0):
    with parallel.init() as world:
        minigrad.manual_seed(0)
        train, test = data.digits()
        model = parallel.DataParallel(network(), world, shards=SHARDS, bucket_bytes=2000)
        loader = data.Loader(
            train.subset(slice(300)), 48, shuffle=True, transform=data.PadCrop(1), sampler=model.sampler
        )
        if kind == "sgd":
            optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        else:
            optimizer = parallel.ShardedOptimizer(optim.Adam(model.parameters(), lr=3e-3), model)
        keeper, history = Keeper(folder, fault, float(pause), model, optimizer, loader), History()
        keeper.restore(history)
        fit(model, loader, optimizer, EPOCHS, test=data.Loader(test, 200), history=history, callbacks=[keeper])
        stopped = len(history) < EPOCHS
        if stopped:
            keeper.save(history)
        digest = hashlib.sha256(checkpoint.weights_hash(model).encode())
        for _, entries in sorted(optimizer.state_dict()["state"].items()):
            for _, value in sorted(entries.items()):
                digest.update(value.tobytes() if hasattr(value, "tobytes") else str(value).encode())
        if world.rank == 0:
            print(f"stopped at {history.steps}" if stopped else f"hash {digest.hexdigest()}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
