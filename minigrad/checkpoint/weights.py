"""Weights from files that other libraries wrote."""

from pathlib import Path

import numpy as np

from ..core.errors import MinigradError
from ..core.tensor import Tensor

__all__ = ["WeightsError", "load_weights"]

WRAPPERS = ("module.", "_orig_mod.")  # what PyTorch's DataParallel and compile put before each name


class WeightsError(MinigradError, ValueError):
    """A file that holds no weights, or not those that are wanted."""


def load_weights(path, prefix=""):
    """{name: Tensor} of a .safetensors or .npz file, for model.load_state_dict; nothing in the file is executed.

    prefix  take the names that begin with it, such as "encoder.", and without it
    Names, shapes and the order of axes are PyTorch's, which are minigrad's too. "module." and "_orig_mod.", which
    PyTorch's wrappers put before all names, are left out.
    Errors  WeightsError, a ValueError, for what is no such file, is damaged, or has no name with the prefix
    Source  Hugging Face, "Safetensors: format"; NumPy, "numpy.lib.format"
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"load_weights: {path} is not a file")
    if path.suffix not in _READERS:
        hint = "what torch.save writes can run code: write it anew by safetensors.torch.save_file(state_dict, ...)"
        raise WeightsError(f"load_weights: {path} ends in {path.suffix!r}, wanted {' or '.join(_READERS)}; {hint}")
    arrays = _READERS[path.suffix](path)
    while arrays and (found := next((one for one in WRAPPERS if all(name.startswith(one) for name in arrays)), None)):
        arrays = {name.removeprefix(found): array for name, array in arrays.items()}
    chosen = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if not chosen:
        raise WeightsError(f"load_weights: {path} has no name that begins with {prefix!r}, but {_some(arrays)}")
    try:
        return {name: Tensor(array) for name, array in chosen.items()}
    except MinigradError as error:
        raise WeightsError(f"load_weights: {path}: {error}") from error


def _some(names, count=5):
    return ", ".join([*list(names)[:count], *["..."] * (len(names) > count)]) or "no names at all"


def _of_safetensors(path):
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise WeightsError(f"load_weights: {path} cannot be read as safetensors: {error}") from error


def _of_npz(path):
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # zipfile, zlib and NumPy, which has Python parse headers, share no class of errors
        raise WeightsError(f"load_weights: {path} cannot be read as .npz: {error}") from error


_READERS = {".safetensors": _of_safetensors, ".npz": _of_npz}
