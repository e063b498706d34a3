"""What pictures refuse."""

from functools import partial

import numpy as np

from minigrad import Tensor, draw, nn

IMAGES = np.ones((2, 1, 4, 4))
EDGES = np.linspace(-2, 2, 41)
COUNTED = [(1, (EDGES, EDGES), np.ones(40), np.ones(40))]


def row(name, error, pattern, *args, **options):
    return f"{name}: {pattern}", partial(getattr(draw, name), *args, **options), error, pattern


REFUSALS = [
    row("filters", ValueError, r"weight has shape \(3, 3\), wanted \(O, C, p, q\)", np.ones((3, 3))),
    row("filters", ValueError, "wanted .O, C, p, q", np.ones((0, 1, 3, 3))),
    row("filters", TypeError, "wanted an array of real numbers", [["a"]]),
    row("filters", ValueError, "not finite", np.full((1, 1, 2, 2), np.nan)),
    row("filters", TypeError, "axes is a int, wanted one matplotlib Axes", np.ones((1, 1, 2, 2)), axes=3),
    row("feature_maps", ValueError, r"wanted \(C, H, W\)", np.ones((1, 2, 3, 3))),
    row("confusion_matrix", ValueError, "as many columns as rows", np.ones((2, 3))),
    row("confusion_matrix", ValueError, "1 labels for 2 classes", np.eye(2), labels=["a"]),
    row("worst_mistakes", ValueError, "has 2 channels", np.ones((2, 2, 4, 4)), [0, 1], np.eye(2)),
    row("worst_mistakes", ValueError, r"targets has shape \(1,\), wanted \(2,\)", IMAGES, [0], np.eye(2)),
    row("worst_mistakes", ValueError, "whole numbers from 0 to 1", IMAGES, [0, 2], np.eye(2)),
    row("worst_mistakes", ValueError, "whole numbers from 0 to 1", IMAGES, [0, 0.5], np.eye(2)),
    row("worst_mistakes", ValueError, "not finite", IMAGES, [0, 1], np.full((2, 2), np.nan)),
    row("histograms", ValueError, "no epoch with weights", []),
    row(
        "histograms", ValueError, "no epoch with gradients", [(1, (EDGES, EDGES), np.ones(40), None)], None, "gradients"
    ),
    row("histograms", ValueError, r"edges has shape \(41,\), wanted \(4,\)", [(1, (EDGES, EDGES), np.ones(3), None)]),
    row("histograms", ValueError, "quantity is 'biases'", COUNTED, quantity="biases"),
    row("roofline", TypeError, "axes is a int, wanted one matplotlib Axes", {"a": (1, 1)}, 1, 1, axes=3),
    row("timeline", ValueError, "spans is empty", []),
    row("memory", ValueError, "1 samples, wanted two or more", [(0, {"a": 1})]),
    row("save", ValueError, "wanted .png or .svg", draw.confusion_matrix(np.eye(2)), "a.pdf"),
    row("save", TypeError, "axes is a int, wanted matplotlib Axes", 3, "a.png"),
    row("save", TypeError, "a Graph has its own save", draw.graph(Tensor([1.0])), "a.svg"),
    row("filters", TypeError, "filters: weight is a Conv2d, wanted an array", nn.Conv2d(1, 2, 3)),
    row("filters", TypeError, "filters: weight is a NoneType", None),
    row("feature_maps", TypeError, "feature_maps: ", [["a"]]),
    row("learning_curve", TypeError, "learning_curve: history is a list, want a train.Hi", [0.5, 0.4]),
    row("save_learning_curve", TypeError, "history is a NoneType", None, "a.png"),
    row("graph", TypeError, "graph: ", [1.0]),
    row("graph", TypeError, "graph: ", np.ones(2)),
]
