"""The computation graph below a Tensor, as a picture in SVG that needs no other program."""

import math
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from ..core.tensor import Leaf, Tensor
from ..nn.module import Module
from ..nn.parameter import Parameter
from ..units import in_bytes
from .layout import Box, arrange
from .svg import size_of, written

__all__ = ["Graph", "graph"]


class Graph:
    """A picture of a computation graph: notebooks show it, save writes it.

    boxes           a Box for each operation and each Tensor at the beginning, inputs first
    edges           (index of the box that gives, index of the box that takes, name of the argument)
    width, height   of the picture, in pixels
    """

    def __init__(self, boxes, edges):
        self.boxes, self.edges = boxes, edges
        for box in boxes:
            box.width, box.height = size_of(box.title, box.lines)
        self.routes, (self.width, self.height) = arrange(boxes, edges)

    def save(self, path):
        """Write the picture to a file whose name ends in .svg; returns the path. Errors: ValueError for another."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise ShapeError(f"Graph.save: {path.name} does not end in .svg; a graph is written as SVG alone")
        path.write_text(self._repr_svg_(), encoding="utf-8")
        return path

    def _repr_svg_(self):
        return written(self)

    def __repr__(self):
        operations = sum(box.kind == "operation" for box in self.boxes)
        return f"Graph({operations} operations, {len(self.boxes) - operations} Tensors at its beginning)"


def graph(tensor, names=None):
    """The operations that made a Tensor, with the shape, type and bytes of what each made; returns a Graph.

    tensor  a Tensor, or several: where the graph ends
    names   {Tensor: its name}, a Module, whose parameters and buffers are named as in its state_dict, or a list of
            those. Names of inner results stand in the boxes of the operations that made them. What is kept for
            backward and has no name is called by the argument of the operation that keeps it, as in "(mean)"
    Drawn is what the tape keeps: operations on Tensors that require a gradient, the leaves that gradients flow to, and
    without a gradient the Tensors that backward will need, such as images and labels, until it has run. Operations
    that were fused are one box. "view" are results that look at the memory of their argument and take no bytes.
    Errors  TypeError for what is no Tensor
    """
    tensors = list(tensor) if isinstance(tensor, list | tuple) else [tensor]
    if not tensors or not all(isinstance(one, Tensor) for one in tensors):
        raise KindError(f"graph: tensor is a {type(tensor).__name__}, wanted a Tensor or several")
    return Graph(*_Walk(_names(names)).run(tensors))


class _Walk:
    """Makes the boxes and edges of a graph, inputs before what needs them."""

    def __init__(self, names):
        self.names, self.boxes, self.edges, self.index = names, [], [], {}

    def run(self, tensors):
        for tensor in tensors:
            if tensor.is_leaf:
                self._tensor(tensor)
        for node in _nodes_below([tensor.node for tensor in tensors if not tensor.is_leaf]):
            sources = [(edge.name, self._source(edge)) for edge in node.edges]
            taken = {name for name, _ in sources}
            for name, value in node.kept.items():
                if name not in taken and isinstance(value, Tensor):
                    sources.append((name, self._tensor(value, f"({name})")))
            order = {name: i for i, name in enumerate(node.primitive.names)}
            sources.sort(key=lambda source: order.get(source[0], 0))
            self.index[node] = self._add(Box("operation", node.primitive.name, _made(node, self.names)))
            self.edges += [(source, self.index[node], name) for name, source in sources]
        return self.boxes, self.edges

    def _source(self, edge):
        """The box of what an edge leads to; that of a leaf which nobody has any more is known by its edge alone."""
        node = edge.target.node
        if node in self.index:
            return self.index[node]
        if node.tensor is not None:
            return self._tensor(node.tensor)
        lines = [_facts(edge.shape, edge.dtype), in_bytes(math.prod(edge.shape) * edge.dtype.itemsize)]
        self.index[node] = self._add(Box("leaf", "leaf", lines))
        return self.index[node]

    def _tensor(self, tensor, role=None):
        """The box of a leaf, or of a Tensor without a gradient: one for all that look at it with the same shape.

        role    what a Tensor without a name is called
        """
        key = _key(tensor)
        if key not in self.index:
            kind = "leaf" if tensor.requires_grad and tensor.is_leaf else "constant"
            unnamed = "parameter" if isinstance(tensor, Parameter) else role or kind
            lines = [_facts(tensor.shape, tensor.dtype), in_bytes(tensor.array.nbytes)]
            self.index[key] = self._add(Box(kind, self.names.get(key, unnamed), lines))
        return self.index[key]

    def _add(self, box):
        self.boxes.append(box)
        return len(self.boxes) - 1


def _key(tensor):
    """What is the same for all Tensors that look at the same elements in the same way."""
    return id(tensor.version), tensor.shape, tensor.requires_grad


def _nodes_below(nodes):
    """All nodes from which these were made, with them, from the oldest to the newest."""
    found, stack = set(), list(nodes)
    while stack:
        if (node := stack.pop()) not in found:
            found.add(node)
            stack += [edge.target.node for edge in node.edges if edge.target.node.__class__ is not Leaf]
    return sorted(found, key=lambda node: node.order)


def _made(node, names):
    """The lines below the name of an operation: what it made."""
    versions = [_version(edge.target) for edge in node.edges]
    lines = []
    for i, (shape, dtype, version) in enumerate(node.outputs):
        seen = any(version is other for other in versions)
        nbytes = "view" if seen else in_bytes(math.prod(shape) * dtype.itemsize)
        lines += [f"+ {nbytes} {node.primitive.outputs[i]}"] if i else [_facts(shape, dtype), nbytes]
        if (node, i) in names:
            lines.append(f"= {names[node, i]}")
    return lines


def _version(target):
    """The version of the memory at which an argument looked; None for a leaf that nobody has any more."""
    if target.node.__class__ is Leaf:
        return None if (tensor := target.node.tensor) is None else tensor.version
    return target.node.outputs[target.output][2]


def _facts(shape, dtype):
    return f"{tuple(shape)} {np.dtype(dtype).name}"


def _names(names):
    """{where a Tensor comes from: its name}, from what the caller gave."""
    found = {}
    for part in names if isinstance(names, list | tuple) else [names or {}]:
        if isinstance(part, Module):
            part = {tensor: name for name, tensor in (*part.named_parameters(), *part.named_buffers())}
        if not isinstance(part, dict) or not all(isinstance(tensor, Tensor) for tensor in part):
            raise KindError(f"graph: names has a {type(part).__name__}, wanted {{Tensor: name}} or a Module")
        for tensor, name in part.items():
            found[_key(tensor) if tensor.is_leaf else tensor.target] = str(name)
    return found
