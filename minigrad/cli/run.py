"""The folder of a run.

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
import platform
import shlex
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from .. import __version__, checkpoint
from ..device import generator
from ..train import Callback
from .machine import machine
from .ranks import job
from .settings import Images, Settings, UsageError, check_can_be_made

__all__ = ["CONFIG", "HISTOGRAMS", "REPORT", "RESULT", "TENSORBOARD", "Run", "Saver", "versions"]

CONFIG, HISTOGRAMS, RESULT = "config.json", "histograms.json", "result.json"
REPORT, TENSORBOARD = "report.html", "tensorboard"
PACKAGES = ("numpy", "numba", "llvmlite", "safetensors", "matplotlib", "tqdm", "pooch")
IF_INSTALLED = ("cupy-cuda13x", "cupy-cuda12x", "cupy", "numba-cuda", "mpi4py", "mpich", "tensorboardX")


def versions():
    """The versions of what a result depends on."""
    found = {"minigrad": __version__, "python": platform.python_version()}
    found |= {package: metadata.version(package) for package in PACKAGES}
    for package in IF_INSTALLED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


class Run:
    """The files in the folder of a run, and the clock of its training.

    seconds     of training until the latest checkpoint, over all processes that have gone on with it
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.seconds, self.counted = 0.0, time.perf_counter()  # when the seconds were counted last

    @property
    def argument(self):
        """The folder as it is typed at a shell."""
        return shlex.quote(str(self.folder))

    @classmethod
    def named(cls, folder, settings):
        """The one given, or one named after the job of the launcher or the time, the data and the model."""
        return cls(
            folder or Path("runs") / f"{job() or time.strftime('%Y%m%d-%H%M%S')}-{settings.data}-{settings.model}"
        )

    @classmethod
    def fresh(cls, folder, settings):
        """A folder for a new run. Errors: UsageError if it holds a run or cannot be written; nothing is made."""
        run = cls.named(folder, settings)
        stem = run.folder
        number = 2
        while folder is None and run.folder.exists():
            run, number = cls(f"{stem}-{number}"), number + 1
        parts = [(run.folder / CONFIG).exists(), checkpoint.exists(run.folder / "last")]
        if any(parts):
            hint = f"go on with it by --resume {run.argument}" if all(parts) else "it is not complete, so remove it"
            raise UsageError(f"{run.folder} holds a run already; {hint} or give another --out")
        check_can_be_made("--out", run.folder)
        return run

    @classmethod
    def of(cls, folder, name="last"):
        """(run, settings, Images) of a folder. Errors: UsageError if it holds no such checkpoint."""
        run = cls(folder)
        if not checkpoint.exists(run.folder / name):
            hint = "it is not the folder of a run" if run.folder.is_dir() else "there is no such folder"
            raise UsageError(f"{run.folder} holds no checkpoint {name!r}: {hint}")
        try:
            config = json.loads((run.folder / CONFIG).read_bytes())
            return run, Settings(**config["settings"]), Images(**config["images"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{run.folder / CONFIG} cannot be used: {checkpoint.reason(error)}") from error

    def begun_by(self, job):
        """Whether no one has begun the run yet, or this job has."""
        try:
            return json.loads((self.folder / CONFIG).read_bytes()).get("job") == job
        except (OSError, ValueError, AttributeError):
            return not (self.folder / CONFIG).exists()

    def write(self, name, content):
        """Put text or bytes into a file of the folder in one step."""
        checkpoint.write_atomic(self.folder / name, content.encode() if isinstance(content, str) else content)

    def write_json(self, name, value, indent=1):
        self.write(name, json.dumps(value, indent=indent) + "\n")

    def read_json(self, name):
        """The fields in a file of the folder; none where it is absent or damaged."""
        try:
            found = json.loads((self.folder / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def begin(self, settings, command, train, parts, history, world):
        """Make the folder, write its configuration, and a checkpoint, so that the run can go on from any end."""
        if world.rank == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            config = {"command": ["minigrad", *command], "created": created, "versions": versions(), "job": job()}
            config |= {"source": train.source, "settings": asdict(settings), "images": asdict(Images.of(train))}
            config["machine"] = machine(settings.device, world.size)
            self.write_json(CONFIG, config)
        self.counted = time.perf_counter()
        self.save("last", parts, history, world)

    def save(self, name, parts, history, world):
        """Write a checkpoint of everything that going on needs; all ranks call this."""
        now = time.perf_counter()
        self.seconds, self.counted = self.seconds + now - self.counted, now
        extra = {
            "history": history.state_dict(),
            "loader": parts.loader.state_dict(),
            "generator": generator().get_state(),
            "scaler": parts.scaler.state_dict(),
            "seconds": self.seconds,
        }
        how = {"keep_previous": name == "last", "world": world}
        checkpoint.save(self.folder / name, parts.model, parts.optimizer, parts.schedule, extra, **how)

    def damage(self):
        """What is wrong with the newest checkpoint, in words, where the one before it is whole; None if nothing is.

        Errors  CheckpointError if there is no whole one
        """
        try:
            checkpoint.read(self.folder / "last")
            return None
        except checkpoint.CheckpointError as error:
            with contextlib.suppress(checkpoint.CheckpointError):
                checkpoint.read(self.folder / "last", previous=True)
                return f"{error}; going on from the one before"
            raise

    def load(self, parts, history, previous, world):
        """Take up the latest checkpoint, or the one before it."""
        state = parts.model, parts.optimizer, parts.schedule
        extra = checkpoint.load(self.folder / "last", *state, previous=previous, world=world)
        try:
            trained_on, here = extra["loader"]["images"], len(parts.loader.dataset)
            if trained_on != here:
                raise UsageError(f"{self.folder} was trained on {trained_on} images, the data set has {here} here")
            history.load_state_dict(extra["history"])
            parts.loader.load_state_dict(extra["loader"])
            generator().set_state(extra["generator"])
            parts.scaler.load_state_dict(extra.get("scaler"))  # which older releases do not write
            self.seconds, self.counted = float(extra.get("seconds", 0.0)), time.perf_counter()
        except UsageError:
            raise
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise UsageError(f"{self.folder / 'last'} cannot be used: {checkpoint.reason(error)}") from error

    def write_history(self, history):
        self.write("history.jsonl", history.to_jsonl())
        self.write("history.csv", history.to_csv())

    def write_curve(self, history):
        import io

        from ..draw import save_learning_curve

        if len(history):
            picture = io.BytesIO()
            save_learning_curve(history, picture)
            self.write("learning-curve.png", picture.getvalue())


class Saver(Callback):
    """Keeps the folder of a run up to date, epoch by epoch, and after every so many updates if told so.

    keeper      a Keeper of the run's checkpoints
    histograms  a Histograms callback that is called before this one, if they are kept
    """

    def __init__(self, keeper, every=None, histograms=None):
        self.keeper, self.every, self.histograms = keeper, every, histograms

    def on_step(self, history):
        if self.every and history.steps % self.every == 0:
            self.keeper.save("last", history)

    def on_epoch(self, history):
        run = self.keeper.run
        if self.keeper.world.rank == 0:
            with self.keeper.writing("the history"):
                run.write_history(history)
        if self.histograms is not None:
            with self.keeper.writing(HISTOGRAMS):
                run.write_json(HISTOGRAMS, self.histograms.state_dict(), None)
        self.keeper.save("last", history)
        # The first of equals stays the best, so that a later epoch must earn its place.
        if history[-1] is max(history.rows, key=lambda row: (row["test_accuracy"], -row["test_loss"])):
            self.keeper.save("best", history)
