"""save and load, as torch.save and torch.load: dictionaries, lists and tuples of Tensors, numbers and texts in a file.

The file is safetensors with JSON in its metadata, whatever its name ends with. Nothing in it is ever executed, and
a pickle, as torch.save writes it, is refused. For a training that must go on after a kill, see `minigrad.checkpoint`.
"""

import json
from collections import OrderedDict
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import KindError, MinigradError

from . import checkpoint, device
from .core.tensor import Tensor

__all__ = ["load", "save"]

KEYS, TUPLE = "__keys__", "__tuple__"  # a dictionary whose keys are not all texts, as pairs; a tuple as a list


class FileError(MinigradError, ValueError):
    """A file that save did not write."""


def save(obj, f):
    """Write a structure of Tensors, numbers, texts and None into a file: a state_dict, or a dictionary of several.

    f       a path, or a binary file
    Errors  TypeError for what is none of these, a whole Module for instance: save its state_dict()
    """
    tensors = {}
    content = checkpoint.packed(tensors, json.dumps({"saved": checkpoint.encoded(_plain(obj), "saved", tensors)}))
    if hasattr(f, "write"):
        f.write(content)
    else:
        checkpoint.write_atomic(Path(f), content)


def load(f, map_location="cpu", weights_only=True, mmap=None):
    """What save has written into a file.

    map_location        the device on which Tensors shall lie
    weights_only, mmap  PyTorch's, without effect: nothing but data is ever read
    Errors  ValueError for a file that save did not write, or that is damaged
    """
    from safetensors import SafetensorError

    place = device.place(map_location or "cpu", "load").name
    content = f.read() if hasattr(f, "read") else Path(f).read_bytes()
    try:
        # "{" follows the size of our header, whose first bytes may be any.
        if content[8:9] != b"{" and content[:2] == b"PK" and b"data.pkl" not in content:
            raise ValueError("it is a zip file; where numpy.savez wrote it, minigrad.load_weights reads it")
        if content[8:9] != b"{" and content.startswith((b"PK", b"\x80")):
            hint = "in PyTorch, safetensors.torch.save_file(state_dict, file) writes what minigrad.load_weights reads"
            raise ValueError(f"it is a pickle, as torch.save writes it, and could run code; {hint}")
        return _whole(checkpoint.unpacked(content)["saved"], place)
    except (LookupError, ValueError, TypeError, SafetensorError) as error:
        raise FileError(f"load: {f} is no file of minigrad.save: {checkpoint.reason(error)}") from error


def _plain(value):
    """The value in what JSON has, and Tensors."""
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(entry) for key, entry in value.items()}
        return {KEYS: [[key, _plain(entry)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        return {TUPLE: [_plain(entry) for entry in value]} if isinstance(value, tuple) else [*map(_plain, value)]
    if value is None or isinstance(value, str | bool | int | float | Tensor | np.ndarray) or device.is_array(value):
        return value
    if isinstance(value, np.generic):
        return value.item()
    hint = "; save its state_dict()" if hasattr(value, "state_dict") else ""
    raise KindError(f"save: got a {type(value).__name__}, wanted Tensors, numbers, texts and None{hint}")


def _whole(value, place):
    """What _plain was given; arrays become Tensors."""
    if isinstance(value, np.ndarray):
        return Tensor(device.move(np.array(value), place))
    if isinstance(value, list):
        return [_whole(entry, place) for entry in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {TUPLE}:
        return tuple(_whole(value[TUPLE], place))
    pairs = value[KEYS] if value.keys() == {KEYS} else value.items()
    return OrderedDict((key, _whole(entry, place)) for key, entry in pairs)
