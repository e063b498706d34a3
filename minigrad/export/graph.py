"""A graph of ONNX nodes while it is made."""

from dataclasses import dataclass

import numpy as np

from .. import device
from .sizes import ExportError, Size

__all__ = ["Graph", "Value"]


@dataclass(frozen=True)
class Value:
    """A tensor of the graph that was an array of the network.

    shape   an integer or a Size for each dimension
    sample  the array in the first run
    """

    name: str
    shape: tuple
    sample: object

    dtype = property(lambda self: self.sample.dtype)
    ndim = property(lambda self: len(self.shape))


class Graph:
    """Nodes in their order and constants by name.

    batch   the name of the input whose first dimension is the batch
    layer   that the nodes to come belong to
    """

    def __init__(self, batch):
        self.nodes, self.constants, self.layer = [], {}, ""
        self._batch, self._taken, self._known, self._numbers = batch, set(), {}, {}

    def named(self, name):
        """The name, with a number behind it where it is taken."""
        number = self._numbers.get(name, 0)
        unique = f"{name}_{number}" if number else name
        while unique in self._taken:
            number += 1
            unique = f"{name}_{number}"
        self._numbers[name] = number + 1
        self._taken.add(unique)
        return unique

    def node(self, kind, *inputs, outputs=1, **attributes):
        """The name of the output of a new node, or names. Inputs are Values, names, arrays, or None for none."""
        for name, value in attributes.items():
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Size):
                    raise ExportError(f"{name} of {kind} is {one}, which must not depend on the batch")
        stem = self.named(f"{self.layer.replace('.', '/')}/{kind}".strip("/"))
        names = [self.named(f"{stem}:{i}" if i else f"{stem}:out") for i in range(outputs)]
        self.nodes.append((kind, stem, [self._name(one) for one in inputs], names, attributes))
        return names[0] if outputs == 1 else tuple(names)

    def _name(self, value):
        if isinstance(value, Value):
            return value.name
        return "" if value is None else value if isinstance(value, str) else self.constant(value)

    # ---- constants -------------------------------------------------------------------------------------------------

    def constant(self, array, name=None):
        """The name of a constant; equal ones are kept once, unless they have a name, made by `named`."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        key = name or (array.dtype, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = name or self.named("constant")
            self.constants[self._known[key]] = array
        return self._known[key]

    def integers(self, values):
        """A vector of integers and Sizes."""
        if not any(isinstance(value, Size) for value in values):
            return self.constant(np.array(values, np.int64))
        parts, static = [], []
        for value in values:
            if isinstance(value, Size):
                parts += [self.constant(np.array(static, np.int64))] if static else []
                parts.append(self._size(value))
                static = []
            else:
                static.append(value)
        parts += [self.constant(np.array(static, np.int64))] if static else []
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    def _size(self, size):
        """A vector of one element."""
        name = self.node("Shape", self._batch, start=0, end=1)
        if size.slope != 1:
            name = self.node("Mul", name, np.array([size.slope], np.int64))
        return self.node("Add", name, np.array([size.offset], np.int64)) if size.offset else name

    # ---- what many rules need --------------------------------------------------------------------------------------

    def cast(self, value, dtype):
        """A Value, a number or a Size in an element type."""
        if isinstance(value, Size):
            return self.to_type(self.node("Squeeze", self._size(value), np.array([0])), dtype)
        if not isinstance(value, Value):
            return self.constant(np.asarray(device.host(value) if device.is_array(value) else value).astype(dtype))
        return value.name if value.dtype == dtype else self.to_type(value, dtype)

    def to_type(self, name, dtype):
        """Converted, whatever it was."""
        return self.node("Cast", name, to=np.dtype(dtype))

    def alike(self, *values):
        """Values and numbers in the element type that they have in common."""
        samples = [one.sample if isinstance(one, Value) else 1 if isinstance(one, Size) else one for one in values]
        dtype = device.result_dtype(*samples)
        return [self.cast(value, dtype) for value in values]

    def reshape(self, name, shape):
        """In another shape, in which one Size follows from the others."""
        if 0 not in shape and sum(isinstance(size, Size) for size in shape) == 1:
            shape = [-1 if isinstance(size, Size) else size for size in shape]
        return self.node("Reshape", name, self.integers(shape), allowzero=int(0 in shape))

    def number(self, value, dtype):
        """A constant without dimensions."""
        return self.constant(np.array(value, dtype))
