"""What training, evaluation and prediction refuse before they begin, and batches that they cannot use."""

from minigrad_kernels.errors import KindError, ShapeError

from ..core.check import instance_of
from ..core.tensor import Tensor
from ..data import Dataset
from ..data.loader import Shards
from ..nn import Module


def check_model(op, model, **loaders):
    """Refuse what is no Module, and a data set in place of its batches."""
    instance_of(op, "model", model, Module)
    for name, batches in loaders.items():
        if isinstance(batches, Dataset) or not hasattr(batches, "__iter__"):
            kind = type(batches).__name__
            raise KindError(f"{op}: {name} is a {kind}, wanted batches: data.Loader(dataset, batch_size)")


def checked(op, batches):
    """The batches as they come, each refused if it is none: Shards, or a pair (images, labels) of as many of each."""
    for number, batch in enumerate(batches):
        match batch:
            case Shards():
                pass
            case (Tensor() as images, Tensor() as labels) if images.ndim and labels.ndim:
                if len(images) != len(labels) or not len(images):
                    raise ShapeError(_unusable(op, number, batch))
            case _:
                raise KindError(_unusable(op, number, batch))
        yield batch


def _unusable(op, number, batch):
    parts = batch if isinstance(batch, tuple | list) else [batch]
    seen = ", ".join(f"{type(part).__name__}{getattr(part, 'shape', '')}" for part in parts)
    wanted = "a pair (images, labels) of Tensors, as many of each and at least one"
    return f"{op}: batch {number} of loader is {seen}, wanted {wanted}"
