"""Readers of what a run keeps as JSON: its settings, its history, where it stood, its results."""

import json
import math
from dataclasses import asdict

import numpy as np

from minigrad import checkpoint
from minigrad.amp import GradScaler
from minigrad.cli.run import CONFIG, Run
from minigrad.cli.settings import BY_DATA, Settings, UsageError
from minigrad.core.errors import KindError, ShapeError
from minigrad.data import Dataset, Loader
from minigrad.device import generator
from minigrad.train import History

from . import mutations
from .files import seal, stated, trained
from .target import Target

__all__ = ["STATES"]

LARGEST = 1 << 16  # pixels and classes of images for which a model is built
ROW = {
    "epoch": 1,
    "lr": 0.1,
    "loss": 0.5,
    "accuracy": 0.25,
    "images_per_second": None,
    "test_loss": 1,
    "test_accuracy": 1.0,
}


def _bytes(*values):
    return [json.dumps(value).encode() for value in values]


def _lived():
    """A History of an epoch and a half."""
    history = History([ROW])
    history.steps, history.latest.images, history.latest.loss = 7, 12, 3.5
    return history


def _history(folder):
    def read(data):
        try:
            state = json.loads(data)
        except (ValueError, RecursionError):
            return
        history = History()
        history.load_state_dict(state)
        assert len(history.to_jsonl().splitlines()) == len(history) and history._repr_html_()
        json.dumps(history.state_dict())

    return _bytes(_lived().state_dict(), History().state_dict()), read


def _configuration(model):
    """What config.json says of a run of this model."""
    images = {"shape": (1, 8, 8), "classes": ("a", "b", "c"), "mean": (0.5,), "std": (0.25,)}
    settings = Settings(**BY_DATA["digits"] | images | {"data": "digits", "model": model})
    return {"settings": asdict(settings), "command": ["minigrad", "train"], "ranks": 1}


def _config(folder):
    checkpoint.save(folder / "last", trained()[0])

    def read(data):
        (folder / CONFIG).write_bytes(data)
        _, settings = Run.of(folder)
        if math.prod(settings.shape) * max(len(settings.classes), 1) < LARGEST:
            settings.transform(settings.augment)
            settings.build_optimizer(settings.build_model())

    return _bytes(_configuration("digits-cnn"), _configuration("mlp")), read


def _resume(folder):
    rng = np.random.default_rng(0)
    images = Dataset(rng.integers(0, 255, (10, 1, 2, 2), np.uint8), rng.integers(0, 2, 10), ("a", "b"), "noise")
    parts = dict(zip(("model", "optimizer", "schedule"), trained(), strict=True))
    parts |= {"loader": Loader(images, 4, True, 0), "scaler": GradScaler()}
    iterator = iter(parts["loader"])
    next(iterator)
    checkpoint.save(folder, **parts, history=_lived())
    path = checkpoint.path_of(folder, 1)

    def read(data):
        seal(path, data)
        before = generator().get_state()
        try:
            history = History()
            checkpoint.load(folder, **parts, history=history, generator=generator(), number=1)
            json.dumps([history.state_dict(), parts["loader"].state_dict(), generator().get_state()])
        finally:
            generator().set_state(before)

    return [stated(path)], read


STATES = [
    Target("history", _history, mutations.by_json, (ShapeError,)),
    Target("config", _config, mutations.by_json, (UsageError, ShapeError, KindError)),
    Target("resume", _resume, mutations.by_json, (UsageError, checkpoint.CheckpointError)),
]
