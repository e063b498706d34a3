"""The computation graph below a Tensor, as a picture in SVG that needs no other program.

The SVG has no styles, scripts or identifiers, so that many fit into one page.
"""

import math
from html import escape
from itertools import pairwise
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import ShapeError

from ..core.tensor import Leaf, Tensor, tensor_of
from ..nn.module import Module
from ..nn.parameter import Parameter
from ..units import in_bytes
from .layout import Box, arrange
from .style import COLORS

SIZE, LINE, PADDING, MARGIN = 12, 16, 10, 16  # of letters, of a line, in a box, around the picture: pixels
FONT = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
LETTER = 0.61 * SIZE  # the width of a letter
LOOKS = {  # fill, border, dashes of the border, radius of the corners, what it means
    "operation": ("#E5F1F8", COLORS[0], "none", 3, "operation"),
    "leaf": ("#FDF1DC", COLORS[4], "none", 14, "leaf: gets a gradient"),
    "constant": ("#F3F3F3", "#666666", "5 3", 14, "kept, without a gradient"),
}


class Graph:
    """A picture of a computation graph: notebooks show it, save writes it.

    boxes           a Box for each operation and each Tensor at the beginning, inputs first
    edges           (index of the box that gives, index of the box that takes, name of the argument)
    size            width and height of the picture, in pixels
    """

    def __init__(self, boxes, edges):
        self.boxes, self.edges = boxes, edges
        for box in boxes:
            box.width = LETTER * max(map(len, (box.title, *box.lines))) + 2 * PADDING
            box.height = LINE * (1 + len(box.lines)) + PADDING
        self.routes, self.size = arrange(boxes, edges)

    def save(self, path):
        """Write the picture to a file whose name ends in .svg; returns the path. Errors: ValueError for another."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise ShapeError(f"Graph.save: {path.name} does not end in .svg; a graph is written as SVG alone")
        path.write_text(self._repr_svg_(), encoding="utf-8")
        return path

    def _repr_svg_(self):
        """The picture as text."""
        legend, x, (across, down) = [], 0.0, self.size
        for kind, (*_, meaning) in LOOKS.items():
            if any(box.kind == kind for box in self.boxes):
                legend += [_rect(kind, x + 12, 8, 24, 14), _text(x + 30, 12.5, meaning)]
                x += 30 + LETTER * len(meaning) + 24
        width, height = max(across, x - 24) + 2 * MARGIN, down + 2 * MARGIN + 2 * LINE
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:100%;height:auto" role="img" '
            f'aria-label="{escape(repr(self))}">\n<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            f'<g font-family="{FONT}" font-size="{SIZE}" fill="black">',
            f'<g transform="translate({MARGIN} {MARGIN})">{"".join(legend)}</g>',
            f'<g transform="translate({(width - across) / 2:.1f} {MARGIN + 2 * LINE})">',
            *map(self._arrow, self.edges, self.routes),
            *map(_box, self.boxes),
            "</g></g></svg>",
        ]
        return "\n".join(parts)

    def _arrow(self, edge, route):
        """From the bottom of a box through the gaps between rows to the top of another."""
        source, target = (self.boxes[end] for end in edge[:2])
        tip, (x, y) = target.y - target.height / 2, route[0]
        path = f"M{x:.1f} {source.y + source.height / 2:.1f}V{y:.1f}"
        for i, ((x0, y0), (x, y)) in enumerate(pairwise(route)):
            bend = (y0 + y) / 2
            path += f"V{y:.1f}" if i % 2 else f"C{x0:.1f} {bend:.1f} {x:.1f} {bend:.1f} {x:.1f} {y:.1f}"
        line = f'<path d="{path}V{tip - 4:.1f}" fill="none" stroke="#555555"/>'
        head = f'<path d="M{x - 4:.1f} {tip - 8:.1f}h8l-4 8z" fill="#555555"/>'
        return f"<g><title>{escape(edge[2])}</title>{line}{head}</g>"

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
    several = tensor if isinstance(tensor, list | tuple) else [tensor]
    tensors = [tensor_of("graph", "tensor", one) for one in several]
    return Graph(*_boxes_and_edges(tensors, _names(names)))


def _boxes_and_edges(tensors, names):
    """What Graph is made of, inputs before what needs them."""
    boxes, edges, index = [], [], {}

    def add(key, kind, title, lines):
        if key not in index:
            index[key] = len(boxes)
            boxes.append(Box(kind, title, lines))
        return index[key]

    def of_tensor(tensor, role=None):
        """One box for all Tensors that look at the same elements with the same shape. role: its name if it has none."""
        key, kind = _key(tensor), "leaf" if tensor.requires_grad and tensor.is_leaf else "constant"
        unnamed = "parameter" if isinstance(tensor, Parameter) else role or kind
        return add(key, kind, names.get(key, unnamed), _facts(tensor.shape, tensor.dtype))

    def of_argument(edge):
        node = edge.target.node
        if node.__class__ is Leaf and node.tensor is not None:
            return of_tensor(node.tensor)
        return add(node, "leaf", "leaf", _facts(edge.shape, edge.dtype))  # an operation has its box

    for tensor in tensors:
        if tensor.is_leaf:
            of_tensor(tensor)
    for node in _nodes_below([tensor.node for tensor in tensors if not tensor.is_leaf]):
        sources = {}
        for edge in node.edges:
            sources.setdefault(edge.name, []).append(of_argument(edge))
        for name, value in node.kept.items():
            if name not in sources and isinstance(value, Tensor):
                sources[name] = [of_tensor(value, f"({name})")]
        here = add(node, "operation", node.primitive.name, _made(node, names))
        order = {name: i for i, name in enumerate(node.primitive.names)}
        for name in sorted(sources, key=lambda name: order.get(name, 0)):
            edges += [(source, here, name) for source in sources[name]]
    return boxes, edges


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
    versions, lines = set(), []  # of the memory at which the arguments looked
    for source, output in (edge.target for edge in node.edges):
        leaf = source.__class__ is Leaf
        versions.add(id(getattr(source.tensor, "version", None) if leaf else source.outputs[output][2]))
    for i, (shape, dtype, version) in enumerate(node.outputs):
        facts, nbytes = _facts(shape, dtype)
        nbytes = "view" if id(version) in versions else nbytes
        lines += [f"+ {nbytes} {node.primitive.outputs[i]}"] if i else [facts, nbytes]
        lines += [f"= {names[node, i]}"] if (node, i) in names else []
    return lines


def _facts(shape, dtype):
    """Two lines: shape and type, bytes."""
    return [f"{tuple(shape)} {np.dtype(dtype).name}", in_bytes(math.prod(shape) * np.dtype(dtype).itemsize)]


def _names(names):
    """{where a Tensor comes from: its name}, from what the caller gave."""
    found = {}
    for part in names if isinstance(names, list | tuple) else [names or {}]:
        if isinstance(part, Module):
            part = {tensor: name for name, tensor in (*part.named_parameters(), *part.named_buffers())}
        for tensor, name in part.items():
            found[_key(tensor) if tensor.is_leaf else tensor.target] = str(name)
    return found


# ---- SVG -------------------------------------------------------------------------------------------------------------


def _box(box):
    first = box.y - box.height / 2 + PADDING / 2 + SIZE
    texts = [_text(box.x, first + i * LINE, line) for i, line in enumerate(box.lines, 1)]
    title = _text(box.x, first, box.title, ' font-weight="bold"')
    frame = _rect(box.kind, box.x, box.y, box.width, box.height)
    return f'<g text-anchor="middle">{frame}{title}{"".join(texts)}</g>'


def _rect(kind, x, y, width, height):
    fill, border, dashes, radius, _ = LOOKS[kind]
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{min(radius, height / 2)}" fill="{fill}" stroke-width="1.5" '
        f'stroke="{border}" stroke-dasharray="{dashes}"/>'
    )


def _text(x, y, text, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'
