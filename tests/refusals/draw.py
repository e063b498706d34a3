"""What pictures refuse."""

from functools import partial

import numpy as np

from minigrad import Tensor, draw, nn

IMAGES = np.ones((2, 1, 4, 4))
EDGES = np.linspace(-2, 2, 41)
COUNTED = [(1, EDGES, np.ones(40), np.ones(40))]
PATHS = {"SGD": np.arange(60.0).reshape(30, 2), "Adam": np.arange(6.0).reshape(3, 2)}
POINTS = {"plain": (0.25, 1.1e9), "tiled": (4, 2e10)}


def bowl(x, y):
    return x * x + 10 * y * y


def row(name, error, pattern, *args, **options):
    return f"{name}: {pattern}", partial(getattr(draw, name), *args, **options), error, pattern


REFUSALS = [
    row("filters", ValueError, r"weight has shape \(3, 3\), wanted \(O, C, p, q\)", np.ones((3, 3))),
    row("filters", ValueError, "has no elements", np.ones((0, 1, 3, 3))),
    row("filters", TypeError, "wanted an array of real numbers", [["a"]]),
    row("filters", ValueError, "weight is not an array", [[1], [1, 2]]),
    row("filters", ValueError, "not finite", np.full((1, 1, 2, 2), np.nan)),
    row("filters", TypeError, "axes is a int, wanted one matplotlib Axes", np.ones((1, 1, 2, 2)), axes=3),
    row("feature_maps", ValueError, r"wanted \(C, H, W\)", np.ones((1, 2, 3, 3))),
    row("confusion_matrix", ValueError, "as many columns as rows", np.ones((2, 3))),
    row("confusion_matrix", ValueError, "no counts", [[1, -1], [0, 2]]),
    row("confusion_matrix", ValueError, "1 labels for 2 classes", np.eye(2), labels=["a"]),
    row("worst_mistakes", ValueError, "has 2 channels", np.ones((2, 2, 4, 4)), [0, 1], np.eye(2)),
    row("worst_mistakes", ValueError, r"targets has shape \(1,\), wanted \(2,\)", IMAGES, [0], np.eye(2)),
    row("worst_mistakes", ValueError, "targets has class 2", IMAGES, [0, 2], np.eye(2)),
    row("worst_mistakes", ValueError, "targets has class -1", IMAGES, [0, -1], np.eye(2)),
    row("worst_mistakes", TypeError, "wanted whole numbers", IMAGES, [0, 0.5], np.eye(2)),
    row("worst_mistakes", ValueError, "not finite", IMAGES, [0, 1], np.full((2, 2), np.nan)),
    row("worst_mistakes", ValueError, "count is 0", IMAGES, [0, 1], np.eye(2), count=0),
    row("histograms", ValueError, "no epoch with weights", []),
    row("histograms", ValueError, "no epoch with gradients", [(1, EDGES, np.ones(40), None)], None, "gradients"),
    row("histograms", TypeError, r"records\['0.weight'\]", {"0.weight": []}),
    row("histograms", TypeError, "wanted .epoch, edges, counts of weights", [(1, EDGES)]),
    row("histograms", ValueError, r"edges has shape \(41,\), wanted \(4,\)", [(1, EDGES, np.ones(3), None)]),
    row("histograms", ValueError, "do not rise", [(1, -EDGES, np.ones(40), None)]),
    row("histograms", ValueError, "quantity is 'biases'", COUNTED, quantity="biases"),
    row("optimizer_paths", TypeError, "function is a int", 3, PATHS),
    row("optimizer_paths", ValueError, "with at least one", bowl, {}),
    row("optimizer_paths", ValueError, r"paths\['a'\] has shape", bowl, {"a": np.ones((3, 3))}),
    row("optimizer_paths", ValueError, "xlim is", bowl, PATHS, xlim=(1, 1)),
    row("optimizer_paths", ValueError, "function.x, y. has shape", lambda x, y: 1.0, PATHS),
    row("optimizer_paths", ValueError, "nowhere finite", lambda x, y: x * np.nan, PATHS),
    row("roofline", ValueError, "with at least one", {}, 1, 1),
    row("roofline", TypeError, "wanted .flop per byte, flop/s", {"a": 3}, 1, 1),
    row("roofline", ValueError, "finite number above 0", {"a": (1, 0)}, 1, 1),
    row("roofline", TypeError, "peak is 'fast', wanted a number", POINTS, "fast", 1),
    row("roofline", ValueError, "bandwidth is inf", POINTS, 1, np.inf),
    row("timeline", ValueError, "spans is empty", []),
    row("timeline", TypeError, "wanted .lane, name, begin, end", [("a", "b", 1)]),
    row("timeline", ValueError, "from 2.0 to 1.0", [("a", "b", 2, 1)]),
    row("memory", ValueError, "1 samples of 1 categories", [(0, {"a": 1})]),
    row("memory", ValueError, "the times of samples fall", [(1, {"a": 1}), (0, {"a": 1})]),
    row("memory", ValueError, "all samples are of the same time", [(1, {"a": 1}), (1, {"a": 1})]),
    row("memory", ValueError, "a has -1 bytes", [(0, {"a": 1}), (1, {"a": -1})]),
    row("memory", TypeError, "a sample is malformed", [(0, 3), (1, 4)]),
    row("save", ValueError, "wanted .png or .svg", draw.confusion_matrix(np.eye(2)), "a.pdf"),
    row("save", TypeError, "axes is a int, wanted matplotlib Axes", 3, "a.png"),
    row("save", TypeError, "a Graph has a method save of its own", draw.graph(Tensor([1.0])), "a.svg"),
    row("filters", TypeError, "filters: weight is a Conv2d, wanted an array", nn.Conv2d(1, 2, 3)),
    row("filters", TypeError, "filters: weight is a NoneType", None),
    row("feature_maps", TypeError, "feature_maps: ", [["a"]]),
    row("learning_curve", TypeError, "learning_curve: history is a list, want a train.Hi", [0.5, 0.4]),
    row("save_learning_curve", TypeError, "history is a NoneType", None, "a.png"),
    row("graph", TypeError, "graph: ", [1.0]),
    row("graph", TypeError, "graph: ", np.ones(2)),
]
