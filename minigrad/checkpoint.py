"""Checkpoints: one safetensors file holds everything that a training needs to go on.

checkpoint-7.safetensors
    tensors         "model.0.weight", "optimizer.state.0.exp_avg": parameters and buffers in the logical order of their
                    axes, filters as (out-channel, in-channel, height, width); the arrays of optimiser and schedule
    metadata        "format" and "version"
                    "state": everything that is no array, as JSON; {"__tensor__": name} stands where an array stood
                    "sha256": the SHA-256 of this state and of all tensors, with their names, types and shapes

A file is written under another name, flushed to the disk and renamed, so at any moment the folder holds whole
checkpoints. The last two are kept: where the newest is damaged all the same, load() goes on from the one before, and
warns. Nothing in a file is ever executed.

Source  Hugging Face, "Safetensors: format"; Pillai and others 2014, "All file systems are not created equal"
        (on what makes a replacement durable)
"""

import contextlib
import copy
import functools
import hashlib
import json
import os
import platform
import re
import warnings
from importlib import metadata
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import MinigradError

from . import device
from .core.check import integer_of
from .core.tensor import Tensor

__all__ = [
    "CheckpointError", "CheckpointWarning", "WeightsError", "exists", "find", "load", "load_weights",
    "numbers", "path_of", "reason", "save", "versions", "weights_hash", "write_atomic",
]  # fmt: skip

FORMAT, VERSION = "minigrad checkpoint", "3"
NAME = re.compile(r"checkpoint-([0-9]{1,9})\.safetensors")
MARK = "__tensor__"
PACKAGES = "numpy numba llvmlite safetensors matplotlib tqdm pooch".split()
PACKAGES += "cupy-cuda13x cupy-cuda12x cupy numba-cuda mpi4py mpich".split()


class CheckpointError(MinigradError, ValueError):
    """A checkpoint that is absent, damaged or of something else, or that cannot be written."""


class CheckpointWarning(UserWarning):
    """The newest checkpoint is damaged, and the one before it was taken."""


class WeightsError(MinigradError, ValueError):
    """A file that holds no weights, or not those that are wanted."""


@contextlib.contextmanager
def _failing(action, path):
    """Turn whatever is wrong with a checkpoint into one CheckpointError. Ranks communicate outside of it."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"checkpoint: cannot {action} {path}: {reason(error)}") from error


def reason(error):
    """What an error met in a file says, in words."""
    return f"no field {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


# ---- save and load ---------------------------------------------------------------------------------------------------


def save(folder, model, optimizer=None, schedule=None, extra=None, *, keep=2, world=None, **parts):
    """Write the state of a model, and of what trains it, into a folder as its newest checkpoint.

    parts       whatever else has state_dict and load_state_dict, under a name of its own: scaler=, loader=, history=.
                The state of the random numbers ("generator") and all versions come along
    extra       JSON values of the caller, which load() returns
    keep        how many checkpoints stay in the folder, this one included; damaged ones do not count
    world       of ranks that train together: all call this, and rank 0 writes; default that of a DataParallel model
    Errors      CheckpointError if a file cannot be written or extra is no JSON, and those that were there stay;
                TypeError and ValueError for keep
    """
    keep, folder = integer_of("checkpoint.save", "keep", keep, 1), Path(folder)
    parts |= {"model": model, "optimizer": optimizer, "schedule": schedule, "generator": device.generator()}
    states = {name: _state_of(part) for name, part in parts.items() if part is not None}  # ranks may meet here
    world = getattr(model, "world", None) if world is None else world
    if world is not None and world.rank:
        return
    with _failing("save", folder):
        tensors = {}
        state = {name: encoded(value, name, tensors) for name, value in states.items()}
        state |= {"extra": extra, "versions": versions(), "optimizer_kind": getattr(optimizer, "name", None)}
        content = packed(tensors, json.dumps(state))
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path_of(folder, max(numbers(folder), default=0) + 1), content)
        _clean(folder, keep)


def load(folder, model=None, optimizer=None, schedule=None, *, number=None, world=None, **parts):
    """Give those that are not None the state in a folder; returns `extra`.

    parts       what else save() was given, by name; generator=minigrad.default_generator to go on with its random
                numbers
    number      of the checkpoint, one of numbers(folder); default the newest that is whole, with a CheckpointWarning if
                a newer one is damaged
    world       of ranks that train together: all call this, and rank 0 reads for them
    Errors      one CheckpointError if the checkpoint is absent, damaged, or does not fit, with the file and what is
                wrong with it; everything is then as before
    """
    parts |= {"model": model, "optimizer": optimizer, "schedule": schedule}
    parts = {name: part for name, part in parts.items() if part is not None}
    path, content = _chosen(Path(folder), number, world)
    before = {name: copy.deepcopy(_state_of(part)) for name, part in parts.items()}  # ranks may meet here
    with _failing("load", path):
        state = unpacked(content)
        extra, kind = state["extra"], state["optimizer_kind"]
        if "optimizer" in parts and kind not in (None, optimizer.name):
            raise ValueError(f"its optimizer is {kind}, this one {optimizer.name}")
    try:
        for name, part in parts.items():
            with _failing(f"load {name} from", path):
                _take(part, state[name])
    except BaseException:
        for name, part in parts.items():
            _take(part, before[name])
        raise
    return extra


def _chosen(folder, number, world):
    """(path, content) of the checkpoint of a number, or of the newest that is whole; rank 0 reads for all."""
    found = None
    if world is None or world.rank == 0:
        try:
            number, content, damage = find(folder) if number is None else (number, _read(folder, number), None)
            if damage:
                warnings.warn(damage, CheckpointWarning, stacklevel=3)
            found = path_of(folder, number), content
        except CheckpointError as error:
            found = error
    found = found if world is None else world.broadcast_object(found)
    if isinstance(found, CheckpointError):
        raise found
    return found


def numbers(folder):
    """The numbers of the checkpoints in a folder, the oldest first; they may be damaged."""
    found = [NAME.fullmatch(path.name) for path in Path(folder).glob("checkpoint-*")]
    return sorted(int(match[1]) for match in found if match)


def exists(folder):
    """Whether a folder holds a checkpoint; it may still be damaged."""
    return bool(numbers(folder))


def find(folder):
    """(number, content, what is wrong with the one after it in words, or None) of the newest whole checkpoint.

    Errors  CheckpointError if there is none
    """
    damage = None
    for number in reversed(numbers(folder)):
        try:
            return number, _read(folder, number), damage and f"{damage}; going on from the one before"
        except CheckpointError as error:
            damage = damage or error
    raise damage or CheckpointError(f"checkpoint: {folder} holds no checkpoint")


def weights_hash(model):
    """SHA-256 over the names, shapes, types and elements (in C order) of all parameters and persistent buffers."""
    return _hash({name: _host(tensor) for name, tensor in model.state_dict().items()})


def _hash(arrays, text=""):
    digest = hashlib.sha256(text.encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


@functools.cache
def versions():
    """{name: version} of minigrad, of Python and of those packages that are installed: what a result depends on."""
    from . import __version__  # not above: the package imports this while it is being made

    found = {"minigrad": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


# ---- states ----------------------------------------------------------------------------------------------------------


def _state_of(part):
    return part.get_state() if isinstance(part, device.Generator) else part.state_dict()


def _take(part, state):
    part.set_state(state) if isinstance(part, device.Generator) else part.load_state_dict(state)


def encoded(value, name, tensors):
    """The value with {MARK: name} for each array; that is put into `tensors` under the name."""
    if isinstance(value, dict):
        return {key: encoded(entry, f"{name}.{key}", tensors) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(entry, f"{name}.{index}", tensors) for index, entry in enumerate(value)]
    if not isinstance(value, Tensor | np.ndarray) and not device.is_array(value):
        return value
    while name in tensors:  # "a.b" may be one name or two
        name += "_"
    tensors[name] = _host(value)
    return {MARK: name}


def _host(value):
    """The elements of a Tensor or an array as a NumPy array in C order."""
    return np.asarray(device.host(value.array if isinstance(value, Tensor) else value), order="C")


# ---- files -----------------------------------------------------------------------------------------------------------


def path_of(folder, number):
    """Where the checkpoint of a number lies."""
    return Path(folder) / f"checkpoint-{number}.safetensors"


def packed(tensors, state):
    """The bytes of a checkpoint."""
    from safetensors.numpy import save as safe

    tensors = dict(sorted(tensors.items()))
    return safe(tensors, {"format": FORMAT, "version": VERSION, "state": state, "sha256": _hash(tensors, state)})


def unpacked(content):
    """The state of the bytes of a checkpoint. Errors: an exception if they are damaged, or of another version"""
    tensors = dict(sorted(_arrays(content).items()))
    about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    if (about["format"], about["version"]) != (FORMAT, VERSION):
        wanted = f"this release reads version {VERSION} of a {FORMAT}"
        hint = "its weights: model.load_state_dict(load_weights(file, 'model.'))"
        raise ValueError(f"it is version {about['version']} of a {about['format']}, {wanted}; {hint}")
    if about["sha256"] != _hash(tensors, about["state"]):
        raise ValueError("it is damaged: what it holds does not have the SHA-256 that it states")
    decoded = lambda fields: tensors[fields[MARK]] if fields.keys() == {MARK} else fields
    return json.loads(about["state"], object_hook=decoded)


def _read(folder, number):
    """The bytes of a checkpoint, verified. Errors: CheckpointError if it is absent, damaged, or of another version"""
    path = path_of(folder, number)
    with _failing("load", path):
        content = path.read_bytes()
        unpacked(content)
        return content


def _arrays(content):
    """{name: array} of the bytes of a safetensors file; BF16 is bfloat16, BOOL bool."""
    from safetensors import deserialize  # safetensors.numpy has no bfloat16

    kinds, arrays = {"BOOL": "bool", "F": "float", "BF": "bfloat", "I": "int", "U": "uint"}, {}
    for name, entry in deserialize(content):
        letters = entry["dtype"].rstrip("0123456789")
        kind = device.element_type(kinds[letters] + entry["dtype"][len(letters) :])
        arrays[name] = np.frombuffer(entry["data"], kind).reshape(entry["shape"])
    return arrays


def write_atomic(path, content):
    """Put bytes into a file so that it holds the old or the new ones at any moment, even without power.

    They are first written to .partial-NAME beside it, which a write that is killed leaves to the next one.
    """
    path = Path(path)
    partial = path.with_name(f".partial-{path.name}")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    if os.name == "posix":  # where folders can be opened: the name is to last too
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _clean(folder, keep):
    """Remove all but the newest, which is whole, and the keep - 1 whole ones before it, where that is possible."""
    kept = 1
    for number in numbers(folder)[-2::-1]:
        with contextlib.suppress(CheckpointError):
            if kept < keep and _read(folder, number):
                kept += 1
                continue
        with contextlib.suppress(OSError):
            os.unlink(path_of(folder, number))


# ---- weights of other libraries --------------------------------------------------------------------------------------


def load_weights(path, prefix=""):
    """{name: Tensor} of a .safetensors or .npz file, for model.load_state_dict; nothing in the file is executed.

    prefix  take the names that begin with it, such as "encoder.", and without it; "model." for a checkpoint; "module."
            or "_orig_mod.", which PyTorch's wrappers put before all names
    Names, shapes and the order of axes are PyTorch's, which are minigrad's too.
    Errors  WeightsError, a ValueError, for what is no such file, is damaged, or has no name with the prefix
    Source  Hugging Face, "Safetensors: format"; NumPy, "numpy.lib.format"
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"load_weights: {path} is not a file")
    if path.suffix not in (".safetensors", ".npz"):
        hint = "what torch.save writes can run code: write it anew by safetensors.torch.save_file(state_dict, ...)"
        raise WeightsError(f"load_weights: {path} ends in {path.suffix!r}, wanted .safetensors or .npz; {hint}")
    try:
        if path.suffix == ".safetensors":
            arrays = _arrays(path.read_bytes())
        else:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = dict(file)
        arrays = {name: Tensor(array) for name, array in arrays.items()}
    except Exception as error:  # zipfile, zlib, NumPy and safetensors share no class of errors
        raise WeightsError(f"load_weights: {path} cannot be read as {path.suffix}: {error}") from error
    chosen = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if not chosen:
        some = ", ".join([*list(arrays)[:5], *["..."] * (len(arrays) > 5)]) or "no names at all"
        raise WeightsError(f"load_weights: {path} has no name that begins with {prefix!r}, but {some}")
    return chosen
