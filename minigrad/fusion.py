"""Inference in fewer passes over memory: convolution, batch norm and ReLU as one convolution.

While a Module is called and nothing is recorded, conv2d returns a Tensor whose elements are still to be computed.
Batch norm with running statistics is then folded into its filters, and ReLU into its last step:

    batch_norm(conv(x, w) + b) = conv(x, s w) + (s b + t),    s = weight / sqrt(running_var + eps),
                                                              t = bias - running_mean s

Whoever looks at the elements in between has them computed, without what was folded later. All are computed by the
time the outermost Module returns, so that nothing waits for arrays that may change afterwards.

Source  Jacob et al. 2018, "Quantization and training of neural networks for efficient integer-arithmetic-only
        inference", section 3.2 (folding)
"""

import contextlib
import contextvars
import weakref
from typing import NamedTuple

from minigrad_kernels import conv2d as kernels
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from . import device
from .anomaly import anomaly
from .modes import recording
from .tensor import Tensor

__all__ = ["convolved", "fold", "inference", "rectified", "run", "wanted"]

_pending: "contextvars.ContextVar[list | None]" = contextvars.ContextVar("pending", default=None)


@contextlib.contextmanager
def inference():
    """Inside, convolutions wait for what may be folded into them; at the end all are computed."""
    waiting: list[weakref.ref] = []
    token = _pending.set(waiting)
    try:
        yield
    finally:
        _pending.reset(token)
        for reference in waiting:
            if type(tensor := reference()) is Pending:
                tensor.compute()


def wanted():
    """Whether a Module that is called now should open such a context."""
    return not recording.get() and _pending.get() is None and not anomaly.get()


class Waiting(NamedTuple):
    """A convolution of arrays; weight lies in any order, bias may be None, relu says whether ReLU follows."""

    x: object
    weight: object
    bias: object
    relu: bool
    geometry: tuple
    shape: tuple


_slot = Tensor.__dict__["_data"]  # where a Tensor keeps its array, and a Pending what its array is to be


def _settle(tensor, array):
    _slot.__set__(tensor, array)
    tensor.__class__ = Tensor


class Pending(Tensor):
    """A convolution that waits. Once computed it is a Tensor like any other."""

    __slots__ = ()

    def compute(self):
        """Its array, made when first asked for."""
        waiting = _slot.__get__(self)
        if type(waiting) is not Waiting:  # another thread was faster
            return waiting
        with device.place_of(waiting.x).active("conv2d"):
            array = run(*waiting)
        _settle(self, array)
        return array

    _data = property(compute, _settle)
    shape = property(lambda self: _slot.__get__(self).shape)
    dtype = property(lambda self: _slot.__get__(self).x.dtype)
    device = property(lambda self: device.device_of(_slot.__get__(self).x))
    ndim = property(lambda self: 4)


def _waits(*parts):
    tensor = Tensor.made(Waiting(*parts))
    tensor.__class__ = Pending
    _pending.get().append(weakref.ref(tensor))
    return tensor


def run(x, weight, bias, relu, geometry, shape):
    """The convolution itself, in new memory."""
    x, weight = device.contiguous(x, CHANNELS_LAST), device.contiguous(weight, FILTER)
    bias = None if bias is None else device.contiguous(bias)
    out = device.empty(shape, x.dtype, CHANNELS_LAST, x)
    nbytes = kernels.workspace("forward", x.shape, weight.shape, *geometry, x.dtype, x)
    kernels.forward(x, weight, bias, relu, *geometry, out, device.workspace(nbytes, x))
    return out


def convolved(input, weight, bias, geometry, shape):
    """conv2d of Tensors as one that waits; None outside of inference."""
    tensors = [tensor for tensor in (input, weight, bias) if tensor is not None]
    if _pending.get() is None or len({tensor.device for tensor in tensors}) > 1:
        return None
    arrays = (None if tensor is None else tensor.data for tensor in (input, weight, bias))
    return _waits(*arrays, False, geometry, shape)


def _open(tensor):
    """What a waiting convolution without ReLU is made of; None for any other Tensor."""
    if type(tensor) is not Pending or _pending.get() is None or recording.get():
        return None
    waiting = _slot.__get__(tensor)
    return None if waiting.relu else waiting


def fold(input, scale, shift):
    """input * scale + shift for vectors of channels, (C,), folded into a convolution; None if input is none."""
    if (waiting := _open(input)) is None:
        return None
    weight = Tensor.made(waiting.weight) * scale.reshape(-1, 1, 1, 1)
    bias = shift if waiting.bias is None else Tensor.made(waiting.bias) * scale + shift
    return _waits(*waiting._replace(weight=weight.data, bias=bias.data))


def rectified(input):
    """relu(input) folded into a convolution; None if input is none."""
    waiting = _open(input)
    return None if waiting is None else _waits(*waiting._replace(relu=True))
