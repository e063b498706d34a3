"""Nodes: what the application of a primitive leaves on the tape, and how its gradients are asked for."""

import functools
import itertools

from minigrad_kernels.errors import KindError, ShapeError, StateError

from . import device
from .anomaly import check_gradient
from .tensor import Tensor

__all__ = ["Later", "Node", "edge_to", "now", "one", "target_of"]

_order = itertools.count()


def now():
    """A number above the order of all nodes so far, and below that of later ones."""
    return next(_order)


class Later(dict):
    """What a node may have instead of the values that it keeps: restore() gives the node a dictionary of them."""

    __slots__ = ()

    def restore(self):
        raise NotImplementedError


class Node:
    """One recorded application of a primitive."""

    __slots__ = (
        "order", "primitive", "edges", "kept", "fast", "versions", "outputs", "hooks", "retained", "freed", "origin",
        "__weakref__",
    )  # fmt: skip

    def __init__(self, primitive, values, edges, arrays, versions, place):
        self.order = next(_order)
        self.primitive = primitive
        if primitive.single:
            array = arrays[0]
            self.outputs = ((array.shape, array.dtype, versions[0]),)
        else:
            self.outputs = [(a.shape, a.dtype, version) for a, version in zip(arrays, versions, strict=True)]
        self.hooks = self.retained = ()  # (output, hook), (output, weak reference to the Tensor)
        self.freed = False
        self.origin, self.edges = place, edges
        kept, seen = {}, []
        needs, self.fast = primitive.needs(tuple([edge[0] for edge in edges]))
        for name, kind, position in needs:
            if kind == "argument":
                kept[name] = value = values[position]
                if isinstance(value, Tensor):
                    version = value.version
                    seen.append((name, version, version[0]))
            elif kind == "output":
                kept[name], version = arrays[position], versions[position]
                seen.append((name, version, version[0]))
            else:
                kept[name] = _shape(values[position])
        self.kept, self.versions = kept, seen

    def gradients(self, incoming, wanted, create_graph):
        """(target, gradient, whether the engine alone holds it) for each edge in wanted.

        incoming    one gradient per output, None where none arrived
        """
        while self.kept.__class__ is not dict:
            self.kept.restore()
        if self.fast and not create_graph and incoming[0] is not None:
            return self._gradients_at_once(incoming, wanted)
        return self._gradients_by_rules(incoming, wanted)

    def _gradients_by_rules(self, incoming, wanted):
        primitive, values = self.primitive, {**self.kept, "g": incoming[0]}
        held = [entry[1] for entry in self.versions]
        for output, name in enumerate(primitive.outputs):
            gradient = values[primitive.incoming[output]] = incoming[output]
            if gradient is not None:
                held.append(gradient.version)
            if name in values:  # kept as an array, so that there is no reference cycle
                node, version = None if name in primitive.fixed else self, self.outputs[output][2]
                values[name] = Tensor.made(values[name], node, output, version)
        for name, index, shape, dtype, target in wanted:
            values["index"] = index
            gradient = primitive.call_rule(name, values, self.outputs)
            if gradient is not None:
                array = gradient._data if gradient.__class__ is Tensor else None
                if array is None or array.shape != shape or array.dtype != dtype:
                    gradient = _fit(gradient, shape, dtype, name, self)
                if self.origin:
                    check_gradient(primitive.name, name, gradient, incoming, self.kept, self.origin)
                version, owned = gradient.version, True
                for other in held:
                    if other is version:
                        owned = False
                yield target, gradient, owned

    def _gradients_at_once(self, incoming, wanted):
        """By the primitive's function on arrays, whose results nobody else holds; by rules what it leaves to them."""
        primitive, values = self.primitive, {**self.kept, "needs": {edge[0] for edge in wanted}}
        values["g"] = values[primitive.incoming[0]] = incoming[0]
        for name, gradient in zip(primitive.incoming[1:], incoming[1:], strict=True):
            values[name] = gradient
        arrays, left = primitive.call_fast(values), []
        for edge in wanted:
            name, _, shape, dtype, target = edge
            if name not in arrays:
                left.append(edge)
                continue
            array = arrays[name]
            gradient = Tensor.made(array)
            if array.shape != shape or array.dtype != dtype:
                gradient = _fit(gradient, shape, dtype, name, self)
            if self.origin:
                check_gradient(primitive.name, name, gradient, incoming, self.kept, self.origin)
            yield target, gradient, True
        if left:
            yield from self._gradients_by_rules(incoming, left)

    def check(self):
        """Refuse to go backward through a freed node or through a value that has changed since."""
        name = self.primitive.name
        if self.freed:
            raise StateError(
                f"{name}: backward through a graph that was freed by an earlier backward; "
                "pass retain_graph=True to the earlier one"
            )
        for argument, version, number in self.versions:
            if version[0] != number:
                raise StateError(
                    f"{name}: {argument} was changed after it was used (version {version[0]}, recorded {number}); "
                    "call backward before the optimiser's step"
                )

    def free(self):
        """Let go of the values; the edges stay, so that a later backward knows which nodes it would need.

        A node that keeps none, a cast for instance, can be gone through again.
        """
        self.freed = self.freed or bool(self.kept)
        self.kept, self.versions = {}, []


def _shape(value):
    return tuple([one.shape for one in value]) if isinstance(value, tuple) else value.shape


def target_of(tensor):
    """Where a gradient of this Tensor goes: the output of the node that made it, or the leaf itself."""
    return tensor if tensor.node is None else (tensor.node, tensor.output)


def edge_to(name, index, tensor):
    """What a node keeps of an argument that needs a gradient: (name, index if starred, shape, type, target)."""
    data = tensor._data
    return name, index, data.shape, data.dtype, target_of(tensor)


def _fit(gradient, shape, dtype, argument, node):
    """The gradient in the shape and type of its argument: sums the axes along which the argument was repeated."""
    if not isinstance(gradient, Tensor):
        raise KindError(
            f"{node.primitive.name}: the rule of {argument} returned {type(gradient).__name__}, wanted a Tensor"
        )
    if gradient.shape != shape:
        extra = gradient.ndim - len(shape)
        axes = range(extra, gradient.ndim)
        if extra < 0 or any(shape[i - extra] not in (1, gradient.shape[i]) for i in axes):
            raise ShapeError(
                f"{node.primitive.name}: the rule of {argument} returned shape {gradient.shape}, wanted {shape}"
            )
        repeated = [i for i in axes if shape[i - extra] == 1 and gradient.shape[i] != 1]
        gradient = gradient.sum((*range(extra), *repeated)).reshape(shape)
    return gradient if gradient.dtype == dtype else gradient.to(dtype)


@functools.cache
def one(place, dtype):
    """The number 1 as the gradient of a scalar loss, kept because every step asks for it.

    Nothing writes to it: the engine adds only into arrays that it alone holds, and the first gradient is not one.
    """
    one = device.full((), 1, dtype, like=place)
    place.wait()  # other streams may be the next to read it
    return one
