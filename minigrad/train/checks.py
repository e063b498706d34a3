"""What training, evaluation and prediction refuse before they begin, and batches that they cannot use."""

import contextlib
from collections.abc import Iterable
from numbers import Real

from minigrad_kernels.errors import KindError, OutOfMemory, ShapeError

from ..core.tensor import Tensor
from ..data import Dataset
from ..data.shards import Shards
from ..nn import Module
from ..optim import Optimizer
from ..optim.lr_scheduler import LRScheduler
from .callback import Callback
from .history import History

__all__ = ["check_counts", "check_model", "check_options", "check_parts", "checked", "naming_batch"]


def check_model(op, model, **loaders):
    """Refuse what is no Module, and what gives no batches."""
    if not isinstance(model, Module):
        raise KindError(f"{op}: model is {model!r}, want an instance of Module")
    for name, batches in loaders.items():
        if isinstance(batches, Dataset):
            raise KindError(f"{op}: {name} is a Dataset, want its batches: data.Loader(dataset, batch_size)")
        if not isinstance(batches, Iterable):
            raise KindError(f"{op}: {name} is a {type(batches).__name__}, want batches (images, labels): a data.Loader")


def check_parts(model, loader, optimizer, test, loss, schedule, history, callbacks):
    """Refuse parts of fit of a wrong kind, or that do not belong together."""
    check_model("fit", model, loader=loader, **{} if test is None else {"test": test})
    if not isinstance(optimizer, Optimizer):
        raise KindError(f"fit: optimizer is {optimizer!r}, want an instance of Optimizer")
    if not callable(loss):
        raise KindError(f"fit: loss is {loss!r}, want a function of (scores, labels)")
    if not isinstance(schedule, LRScheduler | None):
        raise KindError(f"fit: schedule is {schedule!r}, want an LRScheduler or None")
    if schedule is not None and schedule.optimizer is not optimizer:
        raise ShapeError("fit: schedule belongs to another optimiser")
    if not isinstance(history, History | None):
        raise KindError(f"fit: history is {history!r}, want the History of an earlier call or None")
    for index, callback in enumerate(callbacks if isinstance(callbacks, Iterable) else [callbacks]):
        if not isinstance(callback, Callback):
            raise KindError(f"fit: callbacks[{index}] is {callback!r}, want an instance of Callback")
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise KindError(f"fit: callbacks is {callbacks!r}, want several: [callback]")


def check_counts(op, **values):
    """Refuse what is no integer of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise KindError(f"{op}: {name} is {value!r}, want an integer")
        if value < 1:
            raise ShapeError(f"{op}: {name} is {value}, want at least 1")


def check_options(epochs, accumulate, clip, eager):
    """Refuse options of fit out of range."""
    check_counts("fit", epochs=epochs, accumulate=accumulate)
    if clip is not None and (isinstance(clip, bool) or not isinstance(clip, Real)):
        raise KindError(f"fit: clip is {clip!r}, want a number or None")
    if clip is not None and not clip > 0:
        raise ShapeError(f"fit: clip is {clip}, want a number above 0 or None")
    if not isinstance(eager, bool):
        raise KindError(f"fit: eager is {eager!r}, want True or False")


def checked(op, batches):
    """The batches as they come, each refused if it is none: Shards, or a pair (images, labels) of as many of each."""
    for number, batch in enumerate(batches):
        if not isinstance(batch, Shards):
            _check_batch(f"{op}: batch {number} of loader", batch)
        yield batch


def _check_batch(where, batch):
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise KindError(f"{where} is a {_kind(batch)}, want a pair (images, labels)")
    images, labels = batch
    if isinstance(labels, range):  # the device knows which images they are
        return
    for name, value in (("images", images), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise KindError(f"{where} has {_kind(value)} as its {name}, want a Tensor: minigrad.tensor({name})")
    if not images.ndim or not labels.ndim or len(images) != len(labels):
        raise ShapeError(f"{where} has images {images.shape} and labels {labels.shape}, want as many of each")
    if not len(labels):
        raise ShapeError(f"{where} has no images; leave empty batches out")


def _kind(value):
    count = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return type(value).__name__ + count


@contextlib.contextmanager
def naming_batch(op, images):
    """Inside, memory that does not suffice is told with how many images a batch had."""
    try:
        yield
    except OutOfMemory as error:
        smaller = f"; a batch had {images} images, try {max(1, images // 2)}"
        raise OutOfMemory(f"{op}: {error}{smaller}") from error
