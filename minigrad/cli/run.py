"""The folder of a run, and the training that keeps it up to date.

config.json         the command, the versions and all settings
history.jsonl       figures of each epoch, as JSON, one a line
last/, best/        checkpoints: after the latest epoch or update, after the epoch with the best test accuracy
learning-curve.png  loss and accuracy over the epochs
result.json         the final figures
report.html         all of it as one page
tensorboard/        event files, where they were asked for
"""

import json
import math
import os
import platform
import shlex
import time
from argparse import ArgumentTypeError
from dataclasses import asdict
from pathlib import Path

import numpy as np

from minigrad_kernels.toolchain import threads

from .. import checkpoint, data, device, nn, parallel
from ..amp import GradScaler
from ..device import manual_seed
from ..train import Callback, Histograms, History, fit
from ..train.finite import NotFinite
from ..train.team import module_of
from .settings import SCHEDULES, Settings, UsageError

__all__ = ["CONFIG", "RESULT", "Run", "Saver", "Training", "machine"]

CONFIG, RESULT = "config.json", "result.json"


def machine():
    """{what: text} of the system and its processor."""
    processor = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    return {"system": platform.platform(), "processor": processor, "threads": threads()}


class Run:
    """The files in the folder of a run, by default one named after the job of a launcher or the time."""

    def __init__(self, folder, name=""):
        job = os.environ.get("MINIGRAD_JOB") or time.strftime("%Y%m%d-%H%M%S")
        self.folder = Path(folder or f"runs/{job}-{name}")
        self.argument = shlex.quote(str(self.folder))  # as it is typed at a shell

    def check_new(self):
        """Refuse a folder that holds a run already."""
        if (self.folder / CONFIG).exists() or checkpoint.exists(self.folder / "last"):
            hint = f"go on with it by --resume {self.argument}, remove it, or give another --out"
            raise UsageError(f"{self.folder} holds a run already; {hint}")

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
        """The fields in a JSON file of the folder; none where it is absent."""
        path = self.folder / name
        return json.loads(path.read_bytes()) if path.exists() else {}

    def begin(self, settings, command, source, ranks):
        """Make the folder and write its configuration."""
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {"command": ["minigrad", *command], "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "ranks": ranks}
        about |= {"source": source, "settings": asdict(settings), "machine": machine()}
        self.write(CONFIG, about | {"versions": checkpoint.versions()})


class Training:
    """What trains by some settings, all of it new and all random numbers seeded.

    world   of the ranks that train together
    parts   what a checkpoint holds, by name
    """

    def __init__(self, settings, train, test, world):
        manual_seed(settings.seed)
        self.settings = settings = settings.seeing(train)
        self.world, model, shards = world, settings.build_model(), settings.shards
        if settings.sync_batch_norm:
            model = parallel.SyncBatchNorm.convert(model, world)
        # A shard of one image has no statistics for batch norm: a last batch with such shards is left out.
        normed = any(isinstance(module, nn.BatchNorm2d | parallel.SyncBatchNorm) for module in model.modules())
        if normed and settings.batch_size < 2 * shards:
            raise UsageError(f"--batch-size {settings.batch_size} leaves less than 2 images to each of {shards} shards")
        drop_last = normed and len(train) % settings.batch_size < 2 * shards
        shared = shards > 1 or world.size > 1
        model = parallel.DataParallel(model, world, shards=shards) if shared else model
        options = {"transform": settings.transform(settings.augment), "device": settings.device}
        options["sampler"] = model.sampler if shared else None
        loader = data.Loader(train, settings.batch_size, True, settings.seed, drop_last, **options)
        optimizer = settings.build_optimizer(model)
        if shared and settings.zero:
            optimizer = parallel.ShardedOptimizer(optimizer, model)
        updates = settings.epochs * math.ceil(len(loader) / settings.accumulate)
        schedule = SCHEDULES[settings.schedule](optimizer, settings.lr, updates)
        scaler = GradScaler(enabled=settings.precision == "float16")
        self.model, self.loader, self.optimizer = model, loader, optimizer
        self.history, self.histograms, self.test = History(), Histograms(model), settings.test_loader(test)
        self.how = {name: getattr(settings, name) for name in ("accumulate", "clip", "precision", "eager")}
        self.how |= {"schedule": schedule, "scaler": scaler, "history": self.history, "test": self.test}
        self.parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": scaler, "loader": loader}
        self.parts |= {"history": self.history, "histograms": self.histograms}

    def fit(self, callbacks):
        """Train to the end, or until a callback says stop."""
        callbacks = [self.histograms, *callbacks]
        fit(self.model, self.loader, self.optimizer, self.settings.epochs, callbacks=callbacks, **self.how)

    def save(self, folder, keep):
        """Write a checkpoint of everything that going on needs; all ranks call this."""
        checkpoint.save(folder, **self.parts, keep=keep, world=self.world)

    def load(self, folder, number):
        """Take up a checkpoint of this number. Errors: CheckpointError as that of checkpoint.load"""
        checkpoint.load(folder, **self.parts, generator=device.generator(), number=number, world=self.world)


class Saver(Callback):
    """Keeps the folder of a run up to date, epoch by epoch, and after every so many updates if told so; by all ranks.

    A checkpoint whose weights are not finite is not written: the older one is worth more.
    step        of the newest checkpoint
    """

    def __init__(self, run, training, every=None):
        self.run, self.training, self.every, self.step = run, training, every, training.history.steps

    def save(self, name="last"):
        """Write a checkpoint. Errors: CheckpointError if it cannot be; NotFinite for weights or losses that are not"""
        history = self.training.history
        history.running  # noqa: B018  waits for losses that are on their way, and refuses those that are not finite
        for part, tensor in module_of(self.training.model).state_dict().items():
            if not np.isfinite(device.host(tensor.array)).all():
                raise NotFinite(f"{part} is not finite after step {history.steps}, so that is not saved")
        self.training.save(self.run.folder / name, keep=2 if name == "last" else 1)
        self.step = history.steps if name == "last" else self.step

    def on_step(self, history):
        if self.every and history.steps % self.every == 0:
            self.save()

    def on_epoch(self, history):
        if self.training.world.rank == 0:
            self.run.write("history.jsonl", history.to_jsonl())
        # The first of equals stays the best, so that a later epoch must earn its place. It comes before the last: a run
        # that is killed between them does this epoch again.
        if history[-1] is max(history.rows, key=lambda row: (row["test_accuracy"], -row["test_loss"])):
            self.save("best")
        self.save()
