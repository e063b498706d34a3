"""Checkpoints: a folder of JSON files, each with two safetensors files beside it.

checkpoint-7.json           everything that is no array; names, types and shapes of all arrays; versions; the SHA-256 of
                            all three files, its own in its last line
weights-7.safetensors       parameters and buffers under the names of the model, filters as (out-channel, in-channel,
                            height, width) whatever their order in memory: what other libraries read
training-7.safetensors      the arrays of optimiser and schedule

The files of tensors are written first, then the JSON file that vouches for them appears in one step, all under the next
number, then what is not to be kept goes. So at any moment the folder holds whole checkpoints, and
never parts of two as one. Where several are kept, a disk that tears the newest apart costs the work since then and no
more: load() goes on from the one before, and warns. Nothing in any file is ever executed.

Source  Hugging Face, "Safetensors: format"; Pillai and others 2014, "All file systems are not created equal"
        (on what makes a replacement durable)
"""

from .files import CheckpointError, clear_partials, exists, find, numbers, reason, write_atomic
from .loading import CheckpointWarning, load
from .saving import save
from .states import weights_hash
from .weights import WeightsError, load_weights

__all__ = [
    "CheckpointError", "CheckpointWarning", "WeightsError", "clear_partials", "exists", "find", "load", "load_weights",
    "numbers", "reason", "save", "weights_hash", "write_atomic",
]  # fmt: skip
