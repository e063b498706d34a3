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

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path

from .. import checkpoint
from ..checkpoint.versions import versions
from ..device import generator
from ..train import Callback
from .machine import machine
from .ranks import job
from .settings import Images, Settings, UsageError, check_can_be_made

__all__ = ["CONFIG", "HISTOGRAMS", "REPORT", "RESULT", "TENSORBOARD", "Run", "Saver"]

CONFIG, HISTOGRAMS, RESULT = "config.json", "histograms.json", "result.json"
REPORT, TENSORBOARD = "report.html", "tensorboard"
KEPT = {"last": 2, "best": 1}  # checkpoints in these folders


def _parsed(path):
    """What a file holds as JSON. Errors: OSError; ValueError if it is none"""
    try:
        return json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError(f"{path.name} is nested too deeply") from error


class Run:
    """The files in the folder of a run, and the clock of its training.

    config      JSON values that say how the training is made, for its checkpoints
    seconds     of training until the latest checkpoint, over all processes that have gone on with it
    """

    def __init__(self, folder, config=None):
        self.folder, self.config = Path(folder), config
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
            config = _parsed(run.folder / CONFIG)
            return run, Settings(**config["settings"]), Images(**config["images"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{run.folder / CONFIG} cannot be used: {checkpoint.reason(error)}") from error

    def begun_by(self, job):
        """Whether no one has begun the run yet, or this job has."""
        try:
            return _parsed(self.folder / CONFIG).get("job") == job
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
            found = _parsed(self.folder / name)
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
        rest = {"scaler": parts.scaler, "loader": parts.loader, "history": history}
        extra = {"seconds": self.seconds, "images": len(parts.loader.dataset)}
        about = {"extra": extra, "config": self.config, "keep": KEPT[name]}
        checkpoint.save(self.folder / name, parts.model, parts.optimizer, parts.schedule, **rest, **about, world=world)

    def load(self, parts, history, number, world):
        """Take up a checkpoint of this number. Errors: CheckpointError as that of load"""
        rest = {"scaler": parts.scaler, "loader": parts.loader, "history": history, "generator": generator()}
        state = parts.model, parts.optimizer, parts.schedule
        extra = checkpoint.load(self.folder / "last", *state, **rest, number=number, world=world)
        if world.rank == 0:
            checkpoint.clear_partials(self.folder)
        self.seconds, self.counted = self.seconds_in(extra), time.perf_counter()
        trained_on, here = extra.get("images"), len(parts.loader.dataset)
        if trained_on != here:
            raise UsageError(f"{self.folder} was trained on {trained_on} images, the data set has {here} here")

    def seconds_in(self, extra):
        """The seconds of training that a checkpoint says. Errors: UsageError if it says none"""
        seconds = extra.get("seconds") if isinstance(extra, dict) else None
        if not isinstance(seconds, float):
            raise UsageError(f"{self.folder / 'last'} cannot be used: its seconds are {seconds!r}")
        return seconds

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
        # The first of equals stays the best, so that a later epoch must earn its place. It comes before the last: a run
        # that is killed between them does this epoch again.
        if history[-1] is max(history.rows, key=lambda row: (row["test_accuracy"], -row["test_loss"])):
            self.keeper.save("best", history)
        self.keeper.save("last", history)
