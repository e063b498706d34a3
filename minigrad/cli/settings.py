"""What a run is made of: its settings, which are options of the command, and the parts that follow from them."""

import argparse
import contextlib
import math
import os
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

from minigrad_kernels import toolchain
from minigrad_kernels.errors import MinigradError

from .. import data, models, optim
from ..core import create
from ..parallel.errors import CommunicationError
from ..train import PRECISIONS

__all__ = [
    "DEFAULT_MODEL", "MOMENTUM", "OPTIMIZERS", "Images", "Settings", "UsageError", "add_settings",
    "check_can_be_made", "checked_folder", "chosen_data", "count", "kernel_threads",
    "number", "positive", "refusing", "text",
]  # fmt: skip

TEST_BATCH = 256
OPTIMIZERS = {
    kind.__name__.lower(): kind for kind in (optim.Adam, optim.AdamW, optim.SGD, optim.RMSprop, optim.Adagrad)
}
MOMENTUM = 0.9  # of SGD, in Nesterov's form
SCHEDULES = ("none", "cosine", "onecycle", "step", "restore")
# What settings become that are not given, where that depends on others.
DEFAULT_MODEL = {"digits": "digits-cnn", "mnist": "keras-cnn", "cifar10": "resnet"}
BY_DATA = {
    "digits": {"epochs": 20, "batch_size": 32, "augment": True, "new_writers": True},
    "mnist": {"epochs": 10, "batch_size": 64},
    "cifar10": {"epochs": 30, "batch_size": 128, "augment": True},
}
BY_MODEL = {"resnet": {"optimizer": "sgd", "lr": 0.1, "schedule": "onecycle", "weight_decay": 5e-4}}
RATES = {"adam": 3e-3, "adamw": 3e-3, "rmsprop": 1e-3, "adagrad": 0.01, "sgd": 0.03}


class UsageError(MinigradError, ValueError):
    """What was asked for cannot be done; nothing was done."""


@contextlib.contextmanager
def kernel_threads(count):
    """Inside, kernels use this many threads; None leaves them as they are. Errors: UsageError if out of range."""
    before = toolchain.threads()
    with refusing():
        if count is not None:
            toolchain.set_threads(count)
    try:
        yield
    finally:
        toolchain.set_threads(before)


@contextlib.contextmanager
def refusing():
    """Errors inside become UsageErrors: they come before any work. Those of other ranks stay what they are."""
    try:
        yield
    except (UsageError, CommunicationError):
        raise
    except MinigradError as error:
        raise UsageError(str(error)) from error


# ---- values of options -----------------------------------------------------------------------------------------------


def number(kind, holds, wanted):
    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not holds(value):
            raise argparse.ArgumentTypeError(f"got {text}, want {wanted}")
        return value

    return convert


def text(value):
    if not value:
        raise argparse.ArgumentTypeError("got an empty text, want a name")
    return value


count = number(int, lambda value: value >= 1, "an integer of at least 1")
_seed = number(int, lambda value: 0 <= value < 1 << 63, "an integer from 0 to 2^63 - 1")
positive = number(float, lambda value: 0 < value < math.inf, "a number above 0")
_not_negative = number(float, lambda value: 0 <= value < math.inf, "a number of at least 0")


def _option(help, *, default=MISSING, **how):
    """A field of Settings that is an option of the command; how: what argparse takes."""
    return field(default=default, metadata={"help": help, **how})


# ---- settings --------------------------------------------------------------------------------------------------------


@dataclass
class Images:
    """What a network must know of its images: shape (C, H, W), names of the classes, statistics."""

    shape: tuple
    classes: tuple
    mean: tuple
    std: tuple

    def __post_init__(self):
        for one in fields(self):  # JSON has no tuples
            setattr(self, one.name, tuple(getattr(self, one.name)))
        numbers = {"shape": int, "mean": float, "std": float}
        wrong = [name for name, kind in numbers.items() if {type(value) for value in getattr(self, name)} != {kind}]
        if wrong or not len(self.shape) == 3 or not min(self.shape) >= 1:
            raise UsageError(f"images: {self}, want a shape of 3 and numbers for each channel")

    @classmethod
    def of(cls, dataset):
        return cls(dataset.images.shape[1:], dataset.classes, dataset.mean, dataset.std)


@dataclass(kw_only=True)
class Settings:
    """All that decides the result of a run, and where its data are."""

    data: str = _option("", choices=DEFAULT_MODEL)
    data_dir: str | None = _option("where the files of the data set are", type=text, metavar="FOLDER", default=None)
    model: str = _option("the network", choices=models.MODELS)
    size: int  # height and width of the images
    epochs: int = _option("passes over the training images", type=count, metavar="N")
    batch_size: int = _option("images to a batch", type=count, metavar="N")
    lr: float = _option("highest learning rate of the schedule", type=positive, metavar="X", default=RATES["adam"])
    optimizer: str = _option(f"sgd has Nesterov momentum {MOMENTUM}", choices=OPTIMIZERS, default="adam")
    schedule: str = _option(
        "how the learning rate changes: step by step, with restore where the loss rose",
        choices=SCHEDULES,
        default="cosine",
    )
    weight_decay: float = _option("", type=_not_negative, metavar="X", default=0.0)
    augment: bool = _option("shift images at random (CIFAR-10: flip too)", default=False)
    accumulate: int = _option("update once for K batches, as for one large", type=count, metavar="K", default=1)
    clip: float | None = _option("largest 2-norm of the gradient", type=positive, metavar="X", default=None)
    precision: str = _option(
        "in which convolutions and products compute; float16 scales the loss", choices=PRECISIONS, default="float32"
    )
    eager: bool = _option("on a GPU, start each kernel from Python", default=False)
    limit: int | None = _option("use the first N training and test images", type=count, metavar="N", default=None)
    seed: int = _option("of weights, order, dropout and augmentation", type=_seed, metavar="N", default=0)
    new_writers: bool = _option("digits: train a second time on half the writers and test on the others", default=False)
    shards: int = _option(
        "parts into which each batch is cut, on which the result depends, and not on the ranks; default one a rank",
        type=count,
        metavar="S",
        default=1,
    )
    zero: bool = _option("divide the state of the optimiser among the ranks", default=False)
    sync_batch_norm: bool = _option("statistics of batch norm over all ranks", default=False)
    device: str = _option(
        "cpu, cuda, cuda:1, ..., or interpreter, which runs the kernels of GPUs slowly on any machine",
        type=text,
        metavar="NAME",
        default="cpu",
    )

    def __post_init__(self):
        for one in fields(self):  # which may come from a file
            value, choices = getattr(self, one.name), one.metadata.get("choices", ())
            if not isinstance(value, one.type) or isinstance(value, bool) != (one.type is bool):
                wanted = getattr(one.type, "__name__", one.type)
                raise UsageError(f"settings: {one.name} is {value!r}, want {wanted}")
            if choices and value is not None and value not in choices:
                raise UsageError(f"unknown {one.name} {value!r}, want one of {', '.join(choices)}")

    @classmethod
    def of(cls, options, name, ranks=1):
        """The settings of a new run on the data set of this name, by so many ranks."""
        given = {one.name: getattr(options, one.name, None) for one in fields(cls)}
        given = {key: value for key, value in given.items() if value is not None} | {"data": name}
        model = given.setdefault("model", DEFAULT_MODEL[name])
        values = BY_DATA[name] | BY_MODEL.get(model, {}) | {"shards": ranks}
        usual = values.get("optimizer", "adam")
        if given.get("optimizer", usual) != usual:
            values["lr"] = RATES[given["optimizer"]]
        values["size"] = {"digits": models.MODELS[model].made_for or 8, "mnist": 28, "cifar10": 32}[name]
        if "data_dir" in given:
            given["data_dir"] = checked_folder(given["data_dir"])
        if given.get("new_writers") and name != "digits":
            raise UsageError("--new-writers wants --data digits: only there the writers are known")
        return cls(**values | given)

    def datasets(self, split="random", download=True):
        """(train, test)."""
        if self.data == "digits":
            parts = data.digits(split, self.size)
        else:
            parts = {"mnist": data.mnist, "cifar10": data.cifar10}[self.data](self.data_dir, download)
        return parts if self.limit is None else tuple(part.subset(slice(self.limit)) for part in parts)

    def check_new_writers(self):
        """Refuse batches that the images of half the writers cannot fill."""
        if self.new_writers:
            half, _ = self.datasets("writers")
            if self.batch_size > len(half):
                raise UsageError(
                    f"--batch-size is {self.batch_size}, but half of the writers wrote {len(half)} images; "
                    "--no-new-writers trains on the random split alone"
                )

    @property
    def threads(self):
        """For kernels, unless the user says otherwise: sharing a step on tiny images costs more than it saves."""
        return 1 if self.size < 28 else None

    def transform(self, images, augment=False):
        """What is done to its images on their way to the network; None if they are just scaled to 0..1."""
        steps = []
        if augment:
            steps.append(data.PadCrop(4 if self.data == "cifar10" else 2 if self.size >= 28 else 1))
            steps += [data.Flip()] * (self.data == "cifar10")
        if models.MODELS[self.model].normalised:
            steps.append(data.Normalize(images.mean, images.std))
        return data.Compose(steps) if steps else None

    def build_model(self, images):
        """A new model for these images on the chosen device, drawn from the default generator."""
        create.zeros(1, device=self.device)  # refuses a device that is not there
        model = models.build(self.model, images.shape, len(images.classes))
        return model.to(self.device)

    def build_optimizer(self, model):
        """A new optimiser of the parameters of a model."""
        extra = {"momentum": MOMENTUM, "nesterov": True} if self.optimizer == "sgd" else {}
        return OPTIMIZERS[self.optimizer](model.parameters(), lr=self.lr, weight_decay=self.weight_decay, **extra)

    def test_loader(self, test, images):
        batch = min(TEST_BATCH, len(test))
        return data.Loader(test, batch, transform=self.transform(images), device=self.device)


def add_settings(parser, names, default=None):
    """Options for settings; left out they are None, and Settings.of says what they become.

    default     that, in words, where another command says it
    """
    for one in fields(Settings):
        if one.name in names.split():
            how = {key: value for key, value in one.metadata.items() if key != "help"}
            if one.type is bool:
                how["action"] = argparse.BooleanOptionalAction
            help = "; ".join(filter(None, (one.metadata["help"], default or _default(one))))
            parser.add_argument(f"--{one.name.replace('_', '-')}", default=None, help=help, **how)


def _default(one):
    """What a setting becomes that is not given, in words."""
    unsaid = one.name == "shards" or any(one.default is value for value in (MISSING, None, False))
    plain = [] if unsaid else [f"{one.default}"]
    others = DEFAULT_MODEL if one.name == "model" else {}
    others = others or {key: row[one.name] for key, row in (BY_DATA | BY_MODEL).items() if one.name in row}
    found = plain + [f"{'on' if value is True else value} ({key})" for key, value in others.items()]
    return f"default {', '.join(found)}" if found else ""


def checked_folder(data_dir):
    """The folder that --data-dir names, with its whole path."""
    if not Path(data_dir).is_dir():
        raise UsageError(f"--data-dir {data_dir} is not a folder")
    return str(Path(data_dir).resolve())


def check_can_be_made(option, folder):
    """Refuse a folder that an option names and that neither can be written nor made."""
    folder = Path(folder)
    present = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not present.is_dir() or not os.access(present, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {folder} cannot be made: {present} is not a folder that can be written")


def chosen_data(name, data_dir):
    """The name of the data set that --data means, and a sentence if it was chosen for the user."""
    if data_dir is not None:
        checked_folder(data_dir)
    if name not in (None, "auto"):
        return name, None
    folder = data.available("mnist", data_dir)
    if folder is not None:
        return "mnist", f"MNIST was found in {folder}"
    return (
        "digits",
        "MNIST is not on disk: the digits that come with the package (--data mnist downloads MNIST)",
    )
