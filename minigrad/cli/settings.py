"""The settings of a run: a field each, from which come its option, its help, its check and its place in config.json."""

import argparse
import contextlib
import math
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path

from minigrad_kernels.errors import MinigradError
from minigrad_kernels.toolchain import set_threads

from .. import data, models, optim
from ..device import place
from ..optim import lr_scheduler
from ..train import PRECISIONS

OPTIMIZERS = {name.lower(): getattr(optim, name) for name in ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad")}
SCHEDULES = {  # made of an optimiser, its highest rate, and the number of updates
    "none": lambda optimizer, lr, updates: None,
    "cosine": lambda optimizer, lr, updates: lr_scheduler.CosineAnnealingLR(optimizer, updates),
    "onecycle": lambda optimizer, lr, updates: lr_scheduler.OneCycleLR(optimizer, lr, updates),
    "step": lambda optimizer, lr, updates: lr_scheduler.StepLR(optimizer, max(1, math.ceil(updates / 3))),
}
# What settings become that are not given, where that depends on others.
BY_DATA = {
    "digits": {"model": "digits-cnn"},
    "mnist": {"model": "keras-cnn", "epochs": 10, "batch_size": 64, "augment": False},
    "cifar10": {"model": "resnet", "batch_size": 128},
}
BY_MODEL = {"resnet": {"optimizer": "sgd", "lr": 0.1, "schedule": "onecycle", "weight_decay": 5e-4}}
RATES = {"adam": 3e-3, "adamw": 3e-3, "rmsprop": 1e-3, "adagrad": 0.01, "sgd": 0.03}


class UsageError(MinigradError, ValueError):
    """What was asked for cannot be done; nothing was done."""


def number(kind, least, wanted):
    """A converter of text to a number, `least` at least and not infinite."""

    def convert(text):
        with contextlib.suppress(ValueError):
            if least <= (value := kind(text)) < math.inf:
                return value
        raise argparse.ArgumentTypeError(f"got {text}, want {wanted}")

    return convert


count = number(int, 1, "an integer of at least 1")
natural = number(int, 0, "an integer of at least 0")
positive = number(float, 1e-300, "a number above 0")
not_negative = number(float, 0, "a number of at least 0")


def path(wanted, known=(), function=False):
    """A converter of text to a known name, or to the whole path of what is there, whichever folder is current later.

    function    whether :NAME follows the path of a file
    """

    def convert(text):
        file = text.rpartition(":")[0] if function else text
        if text in known:
            return text
        if file and Path(file).exists():
            return str(Path(file).resolve()) + text[len(file) :]
        raise argparse.ArgumentTypeError(f"got {text}, want {wanted}")

    return convert


NETWORKS = f"one of {', '.join(models.MODELS)}, or FILE.py:FUNCTION"
DATA = f"one of {', '.join(BY_DATA)}, or a folder of pictures, a subfolder a class"
SHARDS = "parts of a batch, which ranks share; the result depends on it; default the number of ranks"


def _setting(help, default=MISSING, **how):
    """A field that is an option as well; how: what argparse takes."""
    return field(default=default, metadata={"help": help, **how})


@dataclass(kw_only=True)
class Settings:
    """All that decides the result of a run, and where its data are."""

    data: str = _setting(f"{DATA}; default mnist if on disk, else digits", type=path(DATA, BY_DATA), metavar="NAME")
    data_dir: str | None = _setting("the folder with the files", None, type=path("a folder"), metavar="FOLDER")
    model: str = _setting(NETWORKS, "lenet", type=path(NETWORKS, models.MODELS, True), metavar="NAME")
    size: int | None = _setting("height and width of the pictures of a folder; default 32", None, type=count)
    epochs: int = _setting("passes over the training images", 30, type=count)
    batch_size: int = _setting("images in a batch", 32, type=count)
    lr: float = _setting("the highest learning rate", RATES["adam"], type=positive)
    device: str = _setting("cpu, cuda, cuda:1, ..., or interpreter (slow, needs no GPU)", "cpu")
    optimizer: str = _setting("sgd has Nesterov momentum 0.9", "adam", choices=OPTIMIZERS)
    schedule: str = _setting("how the learning rate changes after each update", "cosine", choices=SCHEDULES)
    weight_decay: float = _setting("", 0.0, type=not_negative)
    augment: bool = _setting("shift images at random (CIFAR-10: flip; digits: turn, slant, thicken)", True)
    accumulate: int = _setting("batches to an update, as for one large batch", 1, type=count)
    clip: float | None = _setting("largest 2-norm of the gradient", None, type=positive)
    precision: str = _setting("of convolutions and products; float16 scales the loss", "float32", choices=PRECISIONS)
    eager: bool = _setting("on a GPU, start each kernel from Python", False)
    limit: int | None = _setting("use the first so many training and test images", None, type=count)
    split: str = _setting("digits: test on random images, or on other writers", "random", choices=("random", "writers"))
    seed: int = _setting("of weights, order, dropout and augmentation", 0, type=natural)
    shards: int = _setting(SHARDS, 1, type=count)
    zero: bool = _setting("divide the state of the optimiser among the ranks", False)

    shape: tuple = ()  # of an image, (C, H, W); this and the rest are the data's
    classes: tuple = ()
    mean: tuple = ()
    std: tuple = ()

    def __post_init__(self):
        if self.split != "random" and self.data != "digits":
            raise UsageError(f"--split {self.split} wants --data digits: only there the writers are known")
        if self.size and self.data in BY_DATA:
            raise UsageError(f"--size {self.size} wants a folder of pictures as --data: {self.data} has a size")

    @classmethod
    def of(cls, options, ranks=1):
        """(settings of a new run by so many ranks, a sentence if its data were chosen for the user)."""
        given, note = given_in(options), ""
        if "data" not in given:
            folder = data.available("mnist", options.data_dir)
            given["data"] = "mnist" if folder else "digits"
            note = f"MNIST was found in {folder}" if folder else "MNIST is not on disk (--data mnist downloads it)"
            note += f"; training on {given['data']}"
        usual = {"optimizer": "adam", "shards": ranks} | BY_DATA.get(given["data"], {})
        usual |= BY_MODEL.get(given.get("model", usual.get("model")), {})
        if given.get("optimizer", usual["optimizer"]) != usual["optimizer"]:
            usual["lr"] = RATES[given["optimizer"]]
        return cls(**usual | given), note

    @property
    def names(self):
        """Those of the network and of the data, without folders."""
        return Path(self.model).stem, Path(self.data).name

    def here(self, options):
        """These settings with what options say of this machine: the folder of the data, device and precision."""
        given = given_in(options)
        return replace(self, **{name: given[name] for name in ("data_dir", "device", "precision") if name in given})

    @property
    def side(self):
        """Height and width of the images; digits are enlarged for networks that want so."""
        if self.data == "digits":
            return models.architecture(self.model).made_for or 8
        return {"mnist": 28, "cifar10": 32}.get(self.data, self.size or 32)

    def set_threads(self, threads):
        """Use so many for kernels. None: one on tiny images, a step on which costs more to share than that saves."""
        if threads or self.side < 28:
            set_threads(threads or 1)

    def datasets(self, download=True):
        """(train, test)."""
        if self.data == "digits":
            parts = data.digits(self.split, self.side)
        elif self.data in BY_DATA:
            parts = getattr(data, self.data)(self.data_dir, download)
        else:
            parts = data.folder(self.data, self.side, self.seed)
        return parts if self.limit is None else tuple(part.subset(slice(self.limit)) for part in parts)

    def seeing(self, dataset):
        """These settings with what the network must know of its images."""
        facts = {name: getattr(dataset, name) for name in ("classes", "mean", "std")}
        return replace(self, shape=dataset.images.shape[1:], **facts)

    def transform(self, augment=False):
        """What is done to images on their way to the network; None if they are just scaled to 0..1."""
        steps = []
        if augment and self.data == "digits":
            steps += [data.Affine(), data.Gamma()]
        elif augment:
            steps.append(data.PadCrop(4 if self.data == "cifar10" else max(1, self.side // 14)))
            steps += [data.Flip()] * (self.data == "cifar10")
        if models.architecture(self.model).normalised:
            steps.append(data.Normalize(self.mean, self.std))
        return data.Compose(steps) if steps else None

    def build_model(self):
        """A new model on the chosen device, drawn from the default generator."""
        place(self.device)  # refused where there is none
        return models.build(self.model, self.shape, len(self.classes)).to(self.device)

    def build_optimizer(self, model):
        """A new optimiser of the parameters of a model."""
        extra = {"momentum": 0.9, "nesterov": True} if self.optimizer == "sgd" else {}
        return OPTIMIZERS[self.optimizer](model.parameters(), lr=self.lr, weight_decay=self.weight_decay, **extra)

    def train_loader(self, train, **options):
        """Shuffled batches of the training images; options as those of a Loader."""
        options |= {"transform": self.transform(self.augment), "device": self.device}
        return data.Loader(train, self.batch_size, True, self.seed, **options)

    def test_loader(self, test):
        """Batches of the test images."""
        return data.Loader(test, min(256, len(test)), transform=self.transform(), device=self.device)


def given_in(options):
    """{name: value} of the settings that options state."""
    found = {one.name: getattr(options, one.name, None) for one in fields(Settings)}
    return {name: value for name, value in found.items() if value is not None}


def options():
    """{option: what argparse takes} for the settings: left out they are None, and Settings.of says what they become."""
    found, rows = {}, ({name: {"lr": rate} for name, rate in RATES.items()} | BY_DATA | BY_MODEL).items()
    for one in filter(lambda one: "help" in one.metadata, fields(Settings)):
        usual = [] if one.default in (MISSING, None, False) or one.name == "shards" else [f"{one.default}"]
        usual += [f"{row[one.name]} ({key})" for key, row in rows if row.get(one.name, one.default) != one.default]
        help = "; ".join(filter(None, (one.metadata["help"], usual and f"default {', '.join(usual)}")))
        kind = {"action": argparse.BooleanOptionalAction} if one.type is bool else {}
        kind |= {"metavar": "N"} if "type" in one.metadata else {}
        found[f"--{one.name.replace('_', '-')}"] = kind | {**one.metadata, "help": help}
    return found
