"""Checkpoints: a folder with a JSON file and the safetensors file that it names.

The tensor file is named by its own SHA-256 and written first, then the JSON file that names it replaces the
old one in one step, then old tensor files go. So at any moment the folder holds one whole checkpoint, the old
or the new, and never parts of both. Where the one before is kept too, `previous.json` names its tensors: a disk that
tears the newest apart costs the work since then and no more. Nothing in any file is ever executed.

Tensors are named "model.0.weight" or "optimizer.3.exp_avg" and lie in the order of their axes, filters as
(out-channel, in-channel, height, width), whatever their order in memory. Everything else is JSON; where a schedule
has an array, it says {"tensor": its name}.

Source  Hugging Face, "Safetensors: format"; Pillai and others 2014, "All file systems are not created equal"
        (on what makes a replacement durable)
"""

import contextlib
import hashlib
import json
from pathlib import Path

import numpy as np

from .. import device
from .files import (
    FORMAT,
    INDEX,
    PARTIAL,
    PREVIOUS,
    TENSORS,
    VERSION,
    CheckpointError,
    Packed,
    exists,
    failing,
    read,
    reason,
    write_atomic,
)
from .states import array_of, copied, joined, model_state, split, with_arrays, without_arrays

__all__ = ["CheckpointError", "exists", "load", "read", "reason", "save", "weights_hash", "write_atomic"]


def save(folder, model, optimizer=None, schedule=None, extra=None, keep_previous=False, world=None):
    """Write the state of a model, and of what trains it, into a folder in place of the checkpoint there.

    extra           JSON values of the caller, which load() returns
    keep_previous   keep the one that was there, for load(folder, previous=True), unless it is damaged
    world           of ranks that train together: all call this, and rank 0 writes; default that of a DataParallel model
    Errors          CheckpointError if a file cannot be written or extra is no JSON; an older one then stays
    """
    folder = Path(folder)
    tensors = {f"model.{name}": array_of(value) for name, value in model.state_dict().items()}
    index = {"format": FORMAT, "version": VERSION, "extra": extra}
    if optimizer is not None:
        arrays, numbers = split(optimizer.state_dict())  # for which ranks may have to meet
        index["optimizer"] = {"kind": optimizer.name, **numbers}
        tensors |= arrays
    if schedule is not None:
        index["schedule"] = without_arrays(schedule.state_dict(), "schedule", tensors)
    world = getattr(model, "world", None) if world is None else world
    if world is not None and world.rank:
        return
    with failing("save", folder):
        from safetensors.numpy import save as pack

        packed = pack(tensors)
        digest = hashlib.sha256(packed).hexdigest()
        index |= {"tensors": TENSORS.format(digest[:16]), "sha256": digest}
        text = json.dumps(index, indent=1)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / index["tensors"], packed)
        kept = {index["tensors"]} | (_keep_as_previous(folder, index["tensors"]) if keep_previous else set())
        write_atomic(folder / INDEX, text.encode())
        for file in [*folder.glob(TENSORS.format("*")), *folder.glob(PARTIAL + "*")]:
            if file.name not in kept:
                file.unlink()


def _keep_as_previous(folder, tensors):
    """Let PREVIOUS name what INDEX names now, if that is whole and not the new tensors; the tensor files to be kept."""
    for name in (INDEX, PREVIOUS):
        with contextlib.suppress(CheckpointError):
            packed = read(folder, name == PREVIOUS)
            kept = json.loads(packed.text)["tensors"]
            if kept != tensors:  # one damaged file must not cost both
                if name == INDEX:
                    write_atomic(folder / PREVIOUS, packed.text)
                return {kept}
    return set()


def load(folder, model=None, optimizer=None, schedule=None, previous=False, world=None):
    """Give model, optimizer and schedule, those that are not None, the state in a folder; returns `extra`.

    previous    the checkpoint before the newest one
    world       of ranks that train together: all call this, and rank 0 reads for them
    Errors      CheckpointError if the checkpoint is absent, damaged, or does not fit; all are then as before
    """
    packed = read(folder, previous) if world is None or world.size == 1 else _read_by_first(folder, previous, world)
    folder = Path(folder)
    with failing("load", folder):
        index, tensors = _unpacked(packed)
    states = []
    with failing("load", folder):
        for name, target in (("optimizer", optimizer), ("schedule", schedule)):
            if target is not None and name not in index:
                raise ValueError(f"it holds no {name}")
        if optimizer is not None:
            kind, wanted = index["optimizer"]["kind"], optimizer.name
            if kind != wanted:
                raise ValueError(f"its optimizer is {kind}, this one {wanted}")
            states.append((optimizer, joined(index["optimizer"], tensors)))
        if schedule is not None:
            states.append((schedule, with_arrays(index["schedule"], tensors)))
        if model is not None:
            states.append((model, model_state(tensors, model)))
    before = [(target, copied(target.state_dict())) for target, _ in states]
    with failing("load", folder):
        try:
            for target, state in states:
                target.load_state_dict(state)
        except BaseException:
            for target, state in before:
                target.load_state_dict(state)
            raise
    return index["extra"]


def _read_by_first(folder, previous, world):
    """What read() gives on rank 0, on all ranks."""
    packed, error = Packed(b"", b""), b""
    if world.rank == 0:
        try:
            packed = read(folder, previous)
        except CheckpointError as wrong:
            error = str(wrong).encode()
    if error := world.broadcast_bytes(error):
        raise CheckpointError(error.decode())
    return Packed(*(world.broadcast_bytes(part) for part in packed))


def _unpacked(packed):
    """The index and the tensors."""
    from safetensors import deserialize  # safetensors.numpy has no bfloat16

    tensors = {name: _array(**entry) for name, entry in deserialize(packed.tensors)}
    return json.loads(packed.text), tensors


def _array(dtype, shape, data):
    """An array from what safetensors says of it; BF16 is bfloat16, BOOL bool."""
    letters = dtype.rstrip("0123456789")
    name = {"BOOL": "bool", "F": "float", "BF": "bfloat", "I": "int", "U": "uint"}[letters] + dtype[len(letters) :]
    return np.frombuffer(data, device.element_type(name)).reshape(shape)


def weights_hash(model):
    """SHA-256 over the names, shapes, types and elements (in C order) of all parameters and persistent buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        array = array_of(tensor)
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()
