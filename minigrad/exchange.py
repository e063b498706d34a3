"""Tensors beside other libraries: memory shared by DLPack, and what a notebook shows of a Tensor.

The methods are bound to Tensor here, so that the core needs to know nothing of either.

Source  "Python Specification for DLPack"
"""

import html

import numpy as np

from minigrad_kernels.errors import ExchangeError, KindError, StateError

from . import device
from .core.tensor import Tensor, history_of

__all__ = ["from_dlpack"]

CUDA = 2  # DLPack's number for it, kDLCUDA
SHOWN, LINES = 1000, 24  # in a notebook: elements fetched from a device, lines of text


def from_dlpack(source):
    """A Tensor on the memory of an array of another library (DLPack), without a copy: what one writes the other sees.

    The memory lives as long as either. Strides stay as they are, and what is read-only there is read-only here.
    Errors  TypeError for what is no such array or has elements of a type that is not known here; BufferError, also a
            RuntimeError, if the library does not share it, as PyTorch where it requires a gradient
    Source  "Python Specification for DLPack"
    """
    kind = type(source).__name__
    try:
        on_gpu = source.__dlpack_device__()[0] == CUDA
        array = (device.place("cuda").module if on_gpu else np).from_dlpack(source)
    except StateError:
        raise
    except BufferError as error:
        raise ExchangeError(f"from_dlpack: the {kind} does not share its memory: {error}") from error
    except (AttributeError, TypeError, RuntimeError) as error:  # the last of an element type that NumPy has not
        wanted = "an array of a library with DLPack, of elements that NumPy has"
        raise KindError(f"from_dlpack: source is a {kind}, wanted {wanted} ({error})") from error
    return Tensor(array)


def _dlpack(tensor, **options):
    if tensor.requires_grad:
        raise ExchangeError("dlpack: self requires a gradient, which the other library would lose; call .detach()")
    if any(stride < 0 for stride in tensor.array.strides) and not options.get("copy"):  # PyTorch would end the process
        raise ExchangeError(f"dlpack: self lies backwards (strides {tensor.array.strides}); call .clone() first")
    try:
        with device.place_of(tensor.array).active():
            return tensor.array.__dlpack__(**options)
    except BufferError as error:
        if tensor.dtype.name == "bfloat16":
            raise ExchangeError("dlpack: NumPy hands over no bfloat16; call .float()") from error
        raise ExchangeError(f"dlpack: {error}; call .clone() first") from error


def _dlpack_device(tensor):
    return tensor.array.__dlpack_device__()


def _repr_html_(tensor):
    facts = f"Tensor {tensor.shape} {tensor.dtype} on {tensor.device}{history_of(tensor)}"
    if tensor.device == "cpu" or tensor.array.size <= SHOWN:
        lines = np.array2string(device.host(tensor.array), separator=", ", threshold=200).split("\n")
        text = "\n".join(lines if len(lines) <= LINES else [*lines[:LINES], "..."])
    else:  # a look at a notebook waits for no stream and moves no large array
        text = f"{tensor.array.size:,} elements; .numpy() brings them here"
    return f"<div><b>{html.escape(facts)}</b><pre>{html.escape(text)}</pre></div>"


for _name, _method in {"__dlpack__": _dlpack, "__dlpack_device__": _dlpack_device, "_repr_html_": _repr_html_}.items():
    setattr(Tensor, _name, _method)
