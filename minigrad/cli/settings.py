"""What a run is made of: the options given, the defaults of the others, and the parts that follow."""

import contextlib
import math
import os
from dataclasses import dataclass, fields
from pathlib import Path

from minigrad_kernels import toolchain
from minigrad_kernels.errors import MinigradError

from .. import create, data, models, nn, optim, parallel
from ..amp import GradScaler
from ..device import manual_seed
from ..parallel.errors import CommunicationError
from ..train import PRECISIONS
from .defaults import BY_DATA, BY_MODEL, DEFAULT_MODEL, DEFAULTS, MOMENTUM, OPTIMIZERS, RATES, SCHEDULES

__all__ = [
    "Images", "Parts", "Settings", "UsageError", "check_can_be_made", "checked_folder", "chosen_data", "kernel_threads",
    "refusing",
]  # fmt: skip

TEST_BATCH = 256


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


@dataclass
class Images:
    """What a network must know of its images: shape (C, H, W), names of the classes, statistics."""

    shape: tuple
    classes: tuple
    mean: tuple
    std: tuple

    def __post_init__(self):
        for field in fields(self):  # JSON has no tuples
            setattr(self, field.name, tuple(getattr(self, field.name)))
        numbers = {"shape": int, "mean": float, "std": float}
        wrong = [name for name, kind in numbers.items() if {type(value) for value in getattr(self, name)} != {kind}]
        if wrong or not len(self.shape) == 3 or not min(self.shape) >= 1:
            raise UsageError(f"images: {self}, want a shape of 3 and numbers for each channel")

    @classmethod
    def of(cls, dataset):
        return cls(dataset.images.shape[1:], dataset.classes, dataset.mean, dataset.std)


@dataclass
class Settings:
    """All that decides the result of a run, and where its data are."""

    data: str
    data_dir: str | None
    model: str
    size: int  # height and width of the images
    epochs: int
    batch_size: int
    lr: float
    optimizer: str
    schedule: str
    weight_decay: float
    augment: bool
    accumulate: int
    clip: float | None
    seed: int
    device: str
    new_writers: bool
    limit: int | None = None  # images of each part, the first ones
    shards: int = 1  # into which each batch is cut
    zero: bool = False  # divide the state of the optimiser among the ranks
    sync_batch_norm: bool = False
    wire: str | None = None  # the type in which gradients travel
    precision: str = "float32"
    eager: bool = False  # on a GPU, without graphs

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, field.type) or isinstance(value, bool) != (field.type is bool):
                wanted = getattr(field.type, "__name__", field.type)
                raise UsageError(f"settings: {field.name} is {value!r}, want {wanted}")
        known = {"data": DEFAULT_MODEL, "model": models.MODELS, "optimizer": OPTIMIZERS, "schedule": SCHEDULES}
        known["precision"] = PRECISIONS
        for name, choices in known.items():
            _check_known(name, getattr(self, name), choices)

    @classmethod
    def of(cls, options, name, ranks=1):
        """The settings of a new run on the data set of this name, by so many ranks."""
        model = options.model or DEFAULT_MODEL[name]
        _check_known("model", model, models.MODELS)
        values = DEFAULTS | BY_DATA[name] | BY_MODEL.get(model, {})
        if options.optimizer not in (None, values["optimizer"]):
            values["lr"] = RATES[options.optimizer]
        given = {key: getattr(options, key) for key in values if getattr(options, key) is not None}
        size = {"digits": models.MODELS[model].made_for or 8, "mnist": 28, "cifar10": 32}[name]
        folder = None if options.data_dir is None else checked_folder(options.data_dir)
        new_writers = name == "digits" if options.new_writers is None else options.new_writers
        if new_writers and name != "digits":
            raise UsageError("--new-writers wants --data digits: only there the writers are known")
        many = {"shards": options.shards or ranks, "zero": bool(options.zero), "wire": options.wire}
        many |= {"sync_batch_norm": bool(options.sync_batch_norm), "limit": options.limit}
        return cls(name, folder, model, size, **values | given, new_writers=new_writers, **many)

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
        kinds = (optim.Adam, optim.AdamW, optim.SGD, optim.RMSprop, optim.Adagrad)
        kind = {kind.__name__.lower(): kind for kind in kinds}[self.optimizer]
        extra = {"momentum": MOMENTUM, "nesterov": True} if self.optimizer == "sgd" else {}
        return kind(model.parameters(), lr=self.lr, weight_decay=self.weight_decay, **extra)

    def test_loader(self, test, images):
        batch = min(TEST_BATCH, len(test))
        return data.Loader(test, batch, transform=self.transform(images), device=self.device)


def _check_known(name, value, choices):
    if value not in choices:
        raise UsageError(f"unknown {name} {value!r}, want one of {', '.join(choices)}")


class Parts:
    """Model, loaders, optimiser and schedule of a run, new, all random numbers seeded.

    world   of the ranks that train together
    """

    def __init__(self, settings, train, test, world):
        manual_seed(settings.seed)
        images = Images.of(train)
        self.model = _parallel(settings, settings.build_model(images), world)
        drop_last = _drops_last(settings, self.model, len(train))
        transform = settings.transform(images, settings.augment)
        options = {"device": settings.device, "sampler": getattr(self.model, "sampler", None)}
        self.loader = data.Loader(train, settings.batch_size, True, settings.seed, drop_last, transform, **options)
        self.test = settings.test_loader(test, images)
        self.optimizer = _sharded(settings, self.model, settings.build_optimizer(self.model))
        updates = settings.epochs * math.ceil(len(self.loader) / settings.accumulate)
        self.schedule = _schedule(settings, self.model, self.optimizer, updates)
        self.scaler = GradScaler(enabled=settings.precision == "float16")

    def fit_arguments(self, settings):
        """What train.fit takes, but for history and callbacks."""
        positional = (self.model, self.loader, self.optimizer, settings.epochs)
        rest = {"schedule": self.schedule, "accumulate": settings.accumulate, "clip": settings.clip}
        rest |= {"test": self.test, "precision": settings.precision, "scaler": self.scaler}
        return positional, rest | {"eager": settings.eager}


def _parallel(settings, model, world):
    """The model, or DataParallel around it where there is more than one shard."""
    if settings.sync_batch_norm:
        model = parallel.SyncBatchNorm.convert(model, world)
    if settings.shards == world.size == 1:
        return model
    return parallel.DataParallel(model, world, shards=settings.shards, wire=settings.wire)


def _drops_last(settings, model, images):
    """Whether the last batch is left out, as a shard of it has one image, whose statistics mean nothing."""
    if not any(isinstance(module, nn.BatchNorm2d | parallel.SyncBatchNorm) for module in model.modules()):
        return False
    if settings.batch_size < 2 * settings.shards:
        raise UsageError(
            f"--batch-size is {settings.batch_size}, which leaves less than 2 images for each of {settings.shards} "
            "shards, and batch norm wants at least 2"
        )
    return 0 < images % settings.batch_size < 2 * settings.shards


def _sharded(settings, model, optimizer):
    """The optimiser, or with its state divided among the ranks."""
    if not settings.zero or not isinstance(model, parallel.DataParallel):
        return optimizer
    return parallel.ShardedOptimizer(optimizer, model, whole_gradients=settings.clip is not None)


def _schedule(settings, model, optimizer, updates):
    """The schedule over this many updates, None for a constant rate."""
    schedules = optim.lr_scheduler
    if settings.schedule == "cosine":
        return schedules.CosineAnnealingLR(optimizer, updates)
    if settings.schedule == "onecycle":
        return schedules.OneCycleLR(optimizer, settings.lr, updates)
    if settings.schedule == "step":
        return schedules.StepLR(optimizer, max(1, math.ceil(updates / 3)))
    if settings.schedule == "restore":
        return schedules.RestoreBest(optimizer, model=model)
    return None


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
