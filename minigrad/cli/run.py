"""The folder of a run, and what keeps it up to date.

config.json         the command, the versions and all settings
history.jsonl       figures of each epoch, as JSON, one a line; history.csv has the same
last/, best/        checkpoints: after the latest epoch or update, after the epoch with the best test accuracy
learning-curve.png  loss and accuracy over the epochs
histograms.json     how weights and gradients are distributed, epoch by epoch
result.json         the final figures
report.html         all of it as one page
tensorboard/        event files, where they were asked for
"""

import contextlib
import json
import os
import platform
import shlex
import time
from argparse import ArgumentTypeError
from dataclasses import asdict
from pathlib import Path

import numpy as np

from minigrad_kernels.toolchain import threads

from .. import checkpoint, device
from ..checkpoint import versions
from ..core.errors import MinigradError
from ..train import Callback, Histograms
from ..train.finite import NotFinite
from ..train.team import module_of
from .settings import Settings, UsageError, check_writable

__all__ = ["CONFIG", "HISTOGRAMS", "RESULT", "Run", "Saver", "machine"]

CONFIG, HISTOGRAMS, RESULT = "config.json", "histograms.json", "result.json"


def machine():
    """{what: text} of the system and its processor."""
    processor = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    return {"system": platform.platform(), "processor": processor, "threads": threads()}


class Run:
    """The files in the folder of a run, by default one named after the job of a launcher or the time."""

    def __init__(self, folder, name=""):
        job = os.environ.get("MINIGRAD_JOB") or time.strftime("%Y%m%d-%H%M%S")
        self.folder = Path(folder or f"runs/{job}-{name}")

    @property
    def argument(self):
        """The folder as it is typed at a shell."""
        return shlex.quote(str(self.folder))

    def check_new(self):
        """Refuse a folder that holds a run already, or cannot be made."""
        parts = [(self.folder / CONFIG).exists(), checkpoint.exists(self.folder / "last")]
        if any(parts):
            hint = f"go on with it by --resume {self.argument}" if all(parts) else "it is not complete, so remove it"
            raise UsageError(f"{self.folder} holds a run already; {hint} or give another --out")
        check_writable("--out", self.folder)

    @classmethod
    def of(cls, folder, name="last"):
        """(run, settings) of a folder. Errors: UsageError if it holds no such checkpoint."""
        run = cls(folder)
        if not checkpoint.exists(run.folder / name):
            hint = "it is not the folder of a run" if run.folder.is_dir() else "there is no such folder"
            raise UsageError(f"{run.folder} holds no checkpoint {name!r}: {hint}")
        try:
            config = json.loads((run.folder / CONFIG).read_bytes())
            return run, Settings(**config["settings"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError, ArgumentTypeError) as error:
            raise UsageError(f"{run.folder / CONFIG} cannot be used: {checkpoint.reason(error)}") from error

    def write(self, name, value):
        """Write a file of the folder in one step: text, or a value as JSON."""
        content = value if isinstance(value, str) else json.dumps(value, indent=1) + "\n"
        checkpoint.write_atomic(self.folder / name, content.encode())

    def read(self, name):
        """The fields in a JSON file of the folder; none where it is absent or damaged."""
        try:
            found = json.loads((self.folder / name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def histograms(self, model, epochs):
        """Those that were counted in the first epochs, to go on with; new ones where the file cannot be used."""
        histograms = Histograms(model)
        with contextlib.suppress(MinigradError):
            histograms.load_state_dict(self.read(HISTOGRAMS), epochs)
        return histograms

    def begin(self, settings, command, train, ranks):
        """Make the folder and write its configuration."""
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {"command": ["minigrad", *command], "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "ranks": ranks}
        about |= {"source": train.source, "settings": asdict(settings)}
        self.write(CONFIG, about | {"machine": machine(), "versions": versions()})

    def save(self, name, parts, history, world):
        """Write a checkpoint of everything that going on needs; all ranks call this."""
        rest = {"scaler": parts.scaler, "loader": parts.loader, "history": history, "keep": 2 if name == "last" else 1}
        checkpoint.save(self.folder / name, parts.model, parts.optimizer, parts.schedule, **rest, world=world)

    def load(self, parts, history, number, world):
        """Take up a checkpoint of this number. Errors: CheckpointError as that of load"""
        rest = {"scaler": parts.scaler, "loader": parts.loader, "history": history, "generator": device.generator()}
        state = parts.model, parts.optimizer, parts.schedule
        checkpoint.load(self.folder / "last", *state, **rest, number=number, world=world)
        if world.rank == 0:
            checkpoint.clear_partials(self.folder)


class Saver(Callback):
    """Keeps the folder of a run up to date, epoch by epoch, and after every so many updates if told so; by all ranks.

    A checkpoint whose weights are not finite is not written: the older one is worth more.
    step        of the newest checkpoint
    histograms  a Histograms callback that is called before this one, if they are kept
    """

    def __init__(self, run, parts, world, history, every=None, histograms=None):
        self.run, self.parts, self.world, self.step = run, parts, world, history.steps
        self.every, self.histograms = every, histograms

    def save(self, name, history):
        """Write a checkpoint. Errors: CheckpointError if it cannot be; NotFinite for weights or losses that are not"""
        history.running  # noqa: B018  waits for losses that are on their way, and refuses those that are not finite
        for part, tensor in module_of(self.parts.model).state_dict().items():
            if not np.isfinite(device.host(tensor.array)).all():
                raise NotFinite(f"{part} is not finite after step {history.steps}, so that is not saved")
        self.run.save(name, self.parts, history, self.world)
        if name == "last":
            self.step = history.steps

    def on_step(self, history):
        if self.every and history.steps % self.every == 0:
            self.save("last", history)

    def on_epoch(self, history):
        if self.world.rank == 0:
            self.run.write("history.jsonl", history.to_jsonl())
            self.run.write("history.csv", history.to_csv())
            if self.histograms is not None:
                self.run.write(HISTOGRAMS, self.histograms.state_dict())
        # The first of equals stays the best, so that a later epoch must earn its place. It comes before the last: a run
        # that is killed between them does this epoch again.
        if history[-1] is max(history.rows, key=lambda row: (row["test_accuracy"], -row["test_loss"])):
            self.save("best", history)
        self.save("last", history)
