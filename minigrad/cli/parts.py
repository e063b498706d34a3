"""The parts of a run: model, loaders, optimiser, schedule and scaler, as its settings say."""

import math

from .. import data, nn, optim, parallel
from ..amp import GradScaler
from ..device import manual_seed
from .settings import Images, UsageError

__all__ = ["Parts"]


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
    return parallel.DataParallel(model, world, shards=settings.shards)


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
    return parallel.ShardedOptimizer(optimizer, model)


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
