"""save: everything that going on needs, as files."""

from minigrad_kernels.errors import KindError, ShapeError

from ..device import generator
from .files import (
    FORMAT,
    VERSION,
    clean,
    failing,
    index_path,
    made_folder,
    numbers,
    sealed,
    tensors_path,
    write_atomic,
    write_tensors,
)
from .states import array_of, check_parts, checked_path, described, encoded, state_of
from .versions import versions

__all__ = ["save"]


def save(
    folder,
    model,
    optimizer=None,
    schedule=None,
    extra=None,
    *,
    scaler=None,
    loader=None,
    history=None,
    config=None,
    keep=1,
    world=None,
):
    """Write the state of a model, and of what trains it, into a folder as its newest checkpoint.

    scaler, loader, history     of amp, data and train. The state of the random numbers and all versions come along
    extra       JSON values of the caller, which load() returns
    config      JSON values that say how the training was made; load() does not read them
    keep        how many checkpoints stay in the folder, this one included; damaged ones do not count
    world       of ranks that train together: all call this, and rank 0 writes; default that of a DataParallel model
    Errors      CheckpointError if a file cannot be written or extra is no JSON, and those that were there stay;
                TypeError and ValueError for arguments
    """
    folder = checked_path("save", folder)
    parts = dict(optimizer=optimizer, schedule=schedule, scaler=scaler, loader=loader, history=history)
    parts = {name: part for name, part in parts.items() if part is not None} | {"generator": generator()}
    check_parts("save", parts | {"model": model})
    _check_keep(keep)
    with failing("save", folder):
        weights, training = {name: array_of(value) for name, value in model.state_dict().items()}, {}
        index = {name: encoded(state_of(part), name, training) for name, part in parts.items()}  # ranks may meet here
        index |= {} if optimizer is None else {"optimizer_kind": optimizer.name}
        index |= {"config": encoded(config, "config", None), "extra": encoded(extra, "extra", None)}
    world = getattr(model, "world", None) if world is None else world
    if world is None or not world.rank:
        with failing("save", folder):
            _write(folder, index, {"weights": weights, "training": training}, keep)


def _check_keep(keep):
    if isinstance(keep, bool) or not isinstance(keep, int):
        raise KindError(f"checkpoint.save: keep is {keep!r}, wanted an integer")
    if keep < 1:
        raise ShapeError(f"checkpoint.save: keep is {keep}, wanted at least 1")


def _write(folder, index, tensors, keep):
    from safetensors.numpy import save as pack

    sealed(index)  # what is no JSON is refused before anything is written
    made_folder(folder)
    number, files = max(numbers(folder), default=0) + 1, {}
    for kind, arrays in tensors.items():
        files[kind] = write_tensors(tensors_path(folder, number, kind), pack(arrays), described(arrays))
    head = {"format": FORMAT, "version": VERSION, "versions": versions(), "files": files}
    write_atomic(index_path(folder, number), sealed(head | index))
    clean(folder, keep)
