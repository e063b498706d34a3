"""Runs of a network in which every application of a primitive is written down."""

import itertools
import sys
from dataclasses import dataclass

import numpy as np

from .. import device
from ..anomaly import anomaly, origin
from ..errors import KindError
from ..modes import autocasting, no_grad, watching
from ..nn import Module
from ..tensor import Tensor

__all__ = ["Call", "Run", "run"]


@dataclass(frozen=True)
class Call:
    """One application of a primitive: its arguments with arrays for Tensors, and the arrays of its results."""

    primitive: object
    values: tuple
    results: tuple
    layer: str  # the path of the innermost layer of the network
    line: str  # of the program that applied it


@dataclass(frozen=True)
class Run:
    """The arrays that went in, the calls in their order, and the arrays that came out by name."""

    inputs: tuple
    calls: list
    outputs: dict


def run(model, shapes, dtypes, batch, seed):
    """The Run of a model on a batch of so many random elements; nothing of the model changes."""
    source = np.random.default_rng(seed)
    like = next(itertools.chain(model.parameters(), model.buffers()), None)
    place = "cpu" if like is None else like.device
    inputs = tuple(
        Tensor(device.move(_drawn(source, (batch, *shape[1:])[: len(shape)], dtype), place))
        for shape, dtype in zip(shapes, dtypes, strict=True)
    )
    names = {module: name for name, module in model.named_modules()}
    training = [(module, module.training) for module in names]
    calls = []

    def watch(primitive, values):
        with watching.setting(None):
            result = primitive.now(values)
        results = result if isinstance(result, tuple) else (result,)
        arrays = tuple(one.data for one in results)
        calls.append(Call(primitive, _arrays(values), arrays, _layer(names), origin()))
        return result

    try:
        # Anomaly mode lets no operation wait for another; without a tape it looks at no result.
        with no_grad(), anomaly.setting(True), autocasting.setting(None), watching.setting(watch):
            outputs = _named(model.eval()(*inputs))
    finally:
        for module, mode in training:
            module.training = mode
    return Run(tuple(one.data for one in inputs), calls, outputs)


def _drawn(source, shape, dtype):
    """Numbers that any network takes: from 0 to 1, integers 0 or 1."""
    if device.is_floating(dtype):
        return device.cast(source.random(shape, np.float32), dtype)
    return device.cast(source.integers(0, 2, shape), dtype)


def _arrays(value):
    if isinstance(value, Tensor):
        return Traced(value.data)
    return tuple([_arrays(one) for one in value]) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Traced:
    """The array of a Tensor among arguments; other arrays there are numbers of the operation itself."""

    array: object


def _layer(names):
    """The path of the innermost Module of the network that is being called."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code is Module._called.__code__ and (module := frame.f_locals["self"]) in names:
            return names[module]
        frame = frame.f_back
    return ""


def _named(outputs):
    """What a network returns, by name."""
    if isinstance(outputs, Tensor):
        outputs = {"output": outputs}
    elif isinstance(outputs, tuple | list):
        outputs = {f"output_{number}": one for number, one in enumerate(outputs)}
    if not isinstance(outputs, dict) or not outputs:
        raise KindError(f"export_onnx: the model returned {type(outputs).__name__}, wanted Tensors")
    for name, one in outputs.items():
        if not isinstance(one, Tensor):
            raise KindError(f"export_onnx: {name} of the model is a {type(one).__name__}, wanted a Tensor")
    return {str(name): one.data for name, one in outputs.items()}
