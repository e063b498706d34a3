"""load: all of it into what trains, or nothing."""

import warnings
from typing import NamedTuple

import numpy as np

from minigrad_kernels.errors import MinigradError

from .. import device
from .files import (
    CheckpointError,
    failing,
    index_path,
    newest,
    numbers,
    parsed,
    read_index,
    read_tensors,
    reason,
    tensors_path,
    verify_tensors,
)
from .states import array_of, check_parts, checked_path, copied, decoded, described, give, misfits, state_of

__all__ = ["CheckpointWarning", "load"]

ROOM = 64  # times the bytes of the parameters: more than any optimiser and schedule keep of them
ARRAYS = {"optimizer", "schedule"}  # what may have some
WRONG = (MinigradError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


class CheckpointWarning(UserWarning):
    """The newest checkpoint is damaged, and the one before it was taken."""


class Packed(NamedTuple):
    """What was read, as bytes: the path of the index, its text, and tensors where they are asked for and fit."""

    path: bytes
    text: bytes
    weights: bytes = b""
    training: bytes = b""


def load(
    folder,
    model=None,
    optimizer=None,
    schedule=None,
    *,
    scaler=None,
    loader=None,
    history=None,
    generator=None,
    number=None,
    world=None,
):
    """Give those that are not None the state in a folder; returns `extra`.

    generator   such as minigrad.default_generator, to go on with its random numbers
    number      of the checkpoint, one of numbers(folder); default the newest that is whole, with a CheckpointWarning if
                a newer one is damaged
    world       of ranks that train together: all call this, and rank 0 reads for them
    Errors      one CheckpointError if the checkpoint is absent, damaged, or does not fit, with the file and all that is
                wrong with it; everything is then as before. TypeError for arguments
    """
    folder = checked_path("load", folder)
    parts = dict(model=model, optimizer=optimizer, schedule=schedule, scaler=scaler, loader=loader, history=history)
    parts = {name: part for name, part in (parts | {"generator": generator}).items() if part is not None}
    check_parts("load", parts)
    read = lambda: _read(folder, number, parts)
    packed = read() if world is None or world.size == 1 else _read_by_first(world, read)
    with failing("load", packed.path.decode()):
        extra, states, faults = _unpacked(packed, parts)
        _give(parts, states, faults)
        if faults:
            raise ValueError("; ".join(faults))
        return extra


# ---- bytes -------------------------------------------------------------------------------------------------------


def _read(folder, number, parts):
    """The checkpoint of this number, or the newest that is whole, Packed."""
    if number is not None:
        if type(number) is not int:
            raise CheckpointError(f"checkpoint.load: number is {number!r}, wanted one of {numbers(folder)}")
        return _packed(folder, number, parts)
    _, packed, damage = newest(folder, lambda number: _packed(folder, number, parts))
    if damage:
        warnings.warn(damage, CheckpointWarning, stacklevel=4)
    return packed


def _packed(folder, number, parts):
    """Files of a checkpoint, verified; those of the model and the optimiser only where their sizes fit."""
    path, text = index_path(folder, number), read_index(folder, number)
    with failing("load", path):
        _, files = parsed(text)
        own = _weights(parts)
        sizes = [array.nbytes for array in own.values()]
        most = {"weights": sum(sizes) if "model" in parts else None}
        sizes += [_bytes_of(getattr(part, "optimizer", part)) for part in parts.values()]
        most["training"] = ROOM * sum(sizes) if sum(sizes) else None
        wanted = {"weights": "model" in parts, "training": bool(ARRAYS & parts.keys())}
        read = {}
        for kind, stored in files.items():
            if kind == "weights" and own and misfits(stored.tensors, described(own)):
                continue  # which is an error of its own
            how = read_tensors if wanted[kind] else verify_tensors
            read[kind] = how(tensors_path(folder, number, kind), stored, most[kind]) or b""
        return Packed(str(path).encode(), text, **read)


def _weights(parts):
    return {name: array_of(value) for name, value in parts["model"].state_dict().items()} if "model" in parts else {}


def _bytes_of(optimizer):
    groups = getattr(optimizer, "param_groups", ())
    return sum(parameter.array.nbytes for group in groups for parameter in group["params"])


def _read_by_first(world, read):
    """What read() gives on rank 0, on all ranks."""
    packed, error = Packed(b"", b""), b""
    if world.rank == 0:
        try:
            packed = read()
        except CheckpointError as wrong:
            error = str(wrong).encode()
    if error := world.broadcast_bytes(error):
        raise CheckpointError(error.decode())
    return Packed(*(world.broadcast_bytes(part) for part in packed))


# ---- states ------------------------------------------------------------------------------------------------------


def _unpacked(packed, parts):
    """(extra, {name: state} of the parts that may fit, what does not, in words)."""
    index, files = parsed(packed.text)
    tensors, states = _arrays(packed.training, files, "training"), {}
    faults = misfits(files["weights"].tensors, described(_weights(parts))) if "model" in parts else []
    if packed.weights:
        states["model"] = _arrays(packed.weights, files, "weights")
    if packed.training:
        states |= {name: decoded(index[name], tensors) for name in sorted(ARRAYS & index.keys())}
        faults += [f"unexpected tensors {', '.join(map(repr, tensors))}"] * bool(tensors)
    others = parts.keys() - ARRAYS - {"model"}
    states |= {name: decoded(index[name], {}) for name in sorted(others & index.keys())}
    faults += [f"it holds no {name}" for name in sorted(parts.keys() - index.keys() - {"model"})]
    if "optimizer" in parts and "optimizer" in index:
        kind, wanted = index["optimizer_kind"], parts["optimizer"].name
        if kind != wanted:
            del states["optimizer"]
            faults.append(f"its optimizer is {kind!s:.60}, this one {wanted}")
    return decoded(index["extra"], {}), states, faults


def _arrays(content, files, kind):
    """{name: array} of a file of tensors, as the index describes it; none where it was not read."""
    from safetensors import deserialize  # safetensors.numpy has no bfloat16

    if not content:
        return {}
    arrays = {name: _array(**entry) for name, entry in deserialize(content)}
    if wrong := misfits(described(arrays), files[kind].tensors):
        raise ValueError(f"its {kind} are not what it says of them: {'; '.join(wrong)}")
    return arrays


def _array(dtype, shape, data):
    """An array from what safetensors says of it; BF16 is bfloat16, BOOL bool."""
    letters = dtype.rstrip("0123456789")
    name = {"BOOL": "bool", "F": "float", "BF": "bfloat", "I": "int", "U": "uint"}[letters] + dtype[len(letters) :]
    return np.frombuffer(data, device.element_type(name)).reshape(shape)


def _give(parts, states, faults):
    """Give the parts their states; add to the faults what does not fit, and leave all as before if there are any."""
    before, well = {name: copied(state_of(part)) for name, part in parts.items()}, False
    try:
        for name in sorted(parts.keys() & states.keys()):
            try:
                give(parts[name], states[name])
            except WRONG as error:
                faults.append(f"{name}: {reason(error)}")
        well = not faults
    finally:
        if not well:
            for name, state in before.items():
                give(parts[name], state)
