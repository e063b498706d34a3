"""What training, evaluation and prediction refuse before they begin, and batches that they cannot use."""

import contextlib

from minigrad_kernels.errors import KindError, OutOfMemory, ShapeError, StateError

from ..core.tensor import Tensor
from ..data import Dataset
from ..data.loader import Shards
from ..graph import CaptureError
from ..nn import Module

__all__ = ["check_kind", "check_model", "checked", "explained"]


def check_kind(op, name, value, kind, optional=False):
    """The value, an instance of this class, or None where it is optional."""
    if not isinstance(value, kind) and not (optional and value is None):
        wanted = f"an instance of {kind.__name__}{' or None' if optional else ''}"
        raise KindError(f"{op}: {name} is {value!r}, wanted {wanted}")
    return value


def check_model(op, model, **loaders):
    """Refuse what is no Module, and a data set in place of its batches."""
    check_kind(op, "model", model, Module)
    for name, batches in loaders.items():
        if isinstance(batches, Dataset) or not hasattr(batches, "__iter__"):
            kind = type(batches).__name__
            raise KindError(f"{op}: {name} is a {kind}, wanted batches: data.Loader(dataset, batch_size)")


def checked(op, batches):
    """The batches as they come, each refused if it is none: Shards, or a pair (images, labels) of as many of each."""
    for number, batch in enumerate(batches):
        if not isinstance(batch, Shards):
            _check_batch(f"{op}: batch {number} of loader", batch)
        yield batch


def _check_batch(where, batch):
    parts = batch if isinstance(batch, tuple | list) else [batch]
    if len(parts) == 2 and isinstance(parts[1], range):  # the device knows which images they are
        return
    pair = len(parts) == 2 and all(isinstance(part, Tensor) for part in parts)
    if not pair or not all(part.ndim for part in parts) or len(parts[0]) != len(parts[1]) or not len(parts[0]):
        seen = ", ".join(f"{type(part).__name__}{getattr(part, 'shape', '')}" for part in parts)
        wanted = "a pair (images, labels) of Tensors, as many of each and at least one"
        raise (ShapeError if pair else KindError)(f"{where} is {seen}, wanted {wanted}")


@contextlib.contextmanager
def explained(op, images):
    """Inside, memory that does not suffice is told with how many images a batch had, and a graph with the way out."""
    try:
        yield
    except OutOfMemory as error:
        smaller = f"; a batch had {images} images, try {max(1, images // 2)}"
        raise OutOfMemory(f"{op}: {error}{smaller}") from error
    except CaptureError as error:
        raise StateError(f"{op}: {error}; eager=True trains without graphs") from error
