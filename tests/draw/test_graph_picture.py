"""The picture of a computation graph: what it says, where it puts boxes and arrows, and the SVG that it writes."""

import itertools
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, draw, models, nn, randn, tensor
from minigrad.core.errors import ShapeError

SVG = "{http://www.w3.org/2000/svg}"


def leaf(*shape):
    return randn(*shape, requires_grad=True)


def loss_of(name, shape):
    """(the loss of a network, the network, its images, its labels)."""
    network, images, labels = models.build(name, shape), randn(2, *shape), tensor([1, 2])
    return nn.functional.cross_entropy(network(images), labels), network, images, labels


def recurrent(steps=5):
    x, w, h = leaf(1, 3), leaf(3, 3), Tensor(np.zeros((1, 3), np.float32))
    for _ in range(steps):
        h = minigrad.tanh(h @ w + x)
    return h.sum()


def tangled(seed, count=40):
    """Random operations on random earlier results."""
    random = np.random.default_rng(seed)
    values = [leaf(2, 2) for _ in range(4)]
    for _ in range(count):
        i, j = random.integers(0, len(values), 2)
        values.append(minigrad.tanh(values[i]) if random.random() < 0.3 else values[i] * values[j])
    return [value for value in values if not value.is_leaf][-5:]


def curvature():
    x = leaf(3)
    (slope,) = minigrad.grad((x**3).sum(), x, create_graph=True)
    return (slope * slope).sum()


GRAPHS = {
    "a leaf": lambda: draw.graph(leaf(2)),
    "a network": lambda: draw.graph(loss_of("resnet", (3, 8, 8))[0]),
    "a loop": lambda: draw.graph(recurrent()),
    "a gradient": lambda: draw.graph(curvature()),
    "two results": lambda: draw.graph([leaf(2) * 2, leaf(3) * leaf(3)]),
    "a tangle": lambda: draw.graph(tangled(0)),
    "a hostile name": lambda: draw.graph((w := leaf(2)) * 2, {w: "<w> & größe"}),
}


# ---- what it says ------------------------------------------------------------------------------------------------


def test_boxes_state_operation_shape_type_and_bytes():
    w, b, x = leaf(3, 4), leaf(4), randn(2, 3)
    hidden = x @ w + b
    graph = draw.graph(hidden.exp().reshape(-1).double().mean(), {w: "w", b: "b", x: "x", hidden: "hidden"})
    assert {box.title: (box.kind, *box.lines) for box in graph.boxes} == {
        "w": ("leaf", "(3, 4) float32", "48 bytes"),
        "b": ("leaf", "(4,) float32", "16 bytes"),
        "x": ("constant", "(2, 3) float32", "24 bytes"),
        "product": ("operation", "(2, 4) float32", "32 bytes"),
        "add": ("operation", "(2, 4) float32", "32 bytes", "= hidden"),
        "exp": ("operation", "(2, 4) float32", "32 bytes"),
        "reshape": ("operation", "(8,) float32", "view"),
        "cast": ("operation", "(8,) float64", "64 bytes"),
        "mean": ("operation", "() float64", "8 bytes"),
    }
    arrows = {f"{graph.boxes[u].title} {graph.boxes[v].title}" for u, v, _ in graph.edges}
    chain = {"product add", "add exp", "exp reshape", "reshape cast", "cast mean"}
    assert arrows == chain | {"w product", "x product", "b add"}


def test_boxes_of_a_network_are_named_and_fused_operations_are_one():
    loss, network, images, labels = loss_of("lenet", (1, 28, 28))
    graph = draw.graph(loss, [network, {images: "images", labels: "labels"}])
    leaves = {box.title: box.lines for box in graph.boxes if box.kind == "leaf"}
    assert leaves.keys() == dict(network.named_parameters()).keys()
    assert leaves["7.weight"] == ["(120, 400) float32", "188 KiB"]
    assert [box.title for box in graph.boxes if box.kind == "constant"] == ["images", "labels"]
    operations = [box.title for box in graph.boxes if box.kind == "operation"]
    fused = ["conv2d_relu_max_pool2d"] * 2
    assert operations == [*fused, "reshape", "linear_relu", "linear_relu", "linear", "cross_entropy"]
    first = next(box for box in graph.boxes if box.title == fused[0])
    assert first.lines == ["(2, 6, 14, 14) float32", "9.19 KiB", "+ 2.3 KiB positions"]
    before = draw.graph(loss)
    assert draw.graph(loss)._repr_svg_() == before._repr_svg_()  # drawing changes nothing
    loss.backward()  # takes away what it needed and leaves the rest
    kept = [box.title for box in before.boxes if box.kind != "constant"]
    assert [box.title for box in draw.graph(loss).boxes] == kept and len(kept) < len(before.boxes)


def test_arguments_that_are_alike_are_told_apart():
    x, parameter = leaf(2), nn.Parameter(np.ones(2, np.float32))
    graph = draw.graph(x * x, {x: "x"})
    assert graph.edges == [(0, 1, "input"), (0, 1, "other")]
    ends = [route[-1] for route in graph.routes]
    assert abs(ends[0][0] - ends[1][0]) > 8  # whose heads can be told apart
    boxes = draw.graph(x * x.detach(), {x: "x"}).boxes
    assert [(box.kind, box.title) for box in boxes] == [("leaf", "x"), ("constant", "(other)"), ("operation", "mul")]
    boxes = draw.graph(parameter * x * randn(2)).boxes
    assert [box.title for box in boxes if box.kind != "operation"] == ["parameter", "leaf", "(other)"]


# ---- where things are --------------------------------------------------------------------------------------------


def points_of(route):
    """Points on the way of an arrow."""
    for (x, y), (u, v) in itertools.pairwise(route):
        yield from ((x + t * (u - x), y + t * (v - y)) for t in np.linspace(0, 1, 40))


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_overlaps_and_the_svg_shows_it(name):
    """Boxes lie apart, each below its arguments; arrows run between them, those that pass rows in lanes."""
    graph = GRAPHS[name]()
    for one, other in itertools.combinations(graph.boxes, 2):
        across = abs(one.x - other.x) - (one.width + other.width) / 2
        down = abs(one.y - other.y) - (one.height + other.height) / 2
        assert across >= 8 or down >= 8, f"{one.title} and {other.title}"
    for u, v, _ in graph.edges:
        upper, lower = graph.boxes[u], graph.boxes[v]
        assert upper.y + upper.height / 2 + 8 <= lower.y - lower.height / 2
    sizes = np.array([(box.x, box.y, box.width / 2, box.height / 2) for box in graph.boxes])
    first, last = sizes[:, :2] - sizes[:, 2:], sizes[:, :2] + sizes[:, 2:]
    assert first.min() > -1e-6 and (last < np.add(graph.size, 1e-6)).all()
    for x, y in itertools.chain.from_iterable(map(points_of, graph.routes)):
        inside = (abs(x - sizes[:, 0]) < sizes[:, 2] - 0.2) & (abs(y - sizes[:, 1]) < sizes[:, 3] - 0.2)
        assert not inside.any(), f"an arrow at {x:.0f}, {y:.0f}: {graph.boxes[inside.argmax()].title}"
    lanes = [(u, *route[1], route[2][1]) for (u, *_), route in zip(graph.edges, graph.routes, strict=True) if route[2:]]
    for (u, x, begin, end), (v, other, top, bottom) in itertools.combinations(lanes, 2):
        assert u == v or x != other or end < top or bottom < begin, "two boxes share a lane"

    root = ElementTree.fromstring(graph._repr_svg_())
    assert not any("id" in element.attrib or "class" in element.attrib for element in root.iter())
    assert len([path for path in root.iter(f"{SVG}path") if path.get("fill") == "none"]) == len(graph.edges)
    written = {element.text for element in root.iter(f"{SVG}text")}
    assert written >= {text for box in graph.boxes for text in (box.title, *box.lines)}
    corners = {(rect.get("x"), rect.get("y")) for rect in root.iter(f"{SVG}rect")}
    assert corners >= {(f"{x:.1f}", f"{y:.1f}") for x, y in first}
    if name == "a network":  # whose main path is straight
        first, *_, last = (box for box in graph.boxes if box.kind == "operation")
        assert first.x == last.x and graph.size[0] < 2000


# ---- the file ----------------------------------------------------------------------------------------------------


def test_save(tmp_path):
    x = leaf(2)
    graph = draw.graph(x * 2, {x: "größe"})
    path = graph.save(tmp_path / "graph.SVG")
    assert path.read_text(encoding="utf-8") == graph._repr_svg_()
    assert repr(graph) == "Graph(1 operations, 1 Tensors at its beginning)"
    with pytest.raises(ShapeError, match=r"graph.png does not end in .svg; a graph is written as SVG alone"):
        graph.save(tmp_path / "graph.png")
    assert [file.name for file in tmp_path.iterdir()] == ["graph.SVG"]
