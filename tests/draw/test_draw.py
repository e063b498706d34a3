"""Pictures by matplotlib: what they show, that texts do not overlap, what they refuse, and what they leave alone."""

import copy
import inspect
import itertools
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from minigrad import Tensor, draw, randn

CIFAR = "airplane automobile bird cat deer dog frog horse ship truck".split()
RANDOM = np.random.default_rng(0)


def assert_legible(axes):
    """No two texts that are drawn overlap, all lie in the figure, and none is too small."""
    axes.figure.draw_without_rendering()
    hidden, window = set(), axes.figure.bbox  # ticks beyond the limits are not drawn, nor is anything of axes without
    for one in axes.figure.findobj(lambda artist: hasattr(artist, "get_xticklabels")):
        for number, axis in enumerate((one.xaxis, one.yaxis)):
            (low, high), labels = sorted(axis.get_view_interval()), axis.get_ticklabels(which="both")
            margin = 1e-6 * (high - low)
            shown = [text for text in labels if low - margin <= text.get_position()[number] <= high + margin]
            hidden |= {*labels} - {*shown} if one.axison else {*labels, axis.label}
    texts = [text for text in axes.figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    boxes = [(text, text.get_window_extent()) for text in texts if text not in hidden]
    for (first, one), (second, other) in itertools.combinations(boxes, 2):
        wide, high = min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0)
        turned = first.get_rotation() == second.get_rotation() == 45  # parallel lines, which boxes do not tell apart
        assert turned or min(wide, high) <= 1.5, f"{first.get_text()!r} overlaps {second.get_text()!r}"
    for text, box in boxes:
        inside = box.x0 >= -2 and box.y0 >= -2 and box.x1 <= window.x1 + 2 and box.y1 <= window.y1 + 2
        assert inside and box.height >= 4, f"{text.get_text()!r} leaves the figure, or is too small"


def histograms_of(epochs, edges):
    def counts(scale):
        return np.histogram(RANDOM.normal(scale=scale, size=500), edges)[0]

    return [(epoch, (edges, edges), counts(0.2 + 0.02 * epoch), counts(0.8 / epoch)) for epoch in range(1, epochs + 1)]


SPANS = [("host", f"conv2d_relu_max_pool2d {i % 9}", 1e-3 * i, 1e-3 * (i + 0.8)) for i in range(30)]
SPANS += [("device", name, begin + 4e-4, end + 4e-4) for _, name, begin, end in SPANS]
SAMPLES = [(1e-3 * i, {"parameters": 2**20, "activations": 2**18 * min(i, 50 - i)}) for i in range(50)]
COUNTS = np.diag(RANDOM.integers(800, 1100, 10)) + RANDOM.integers(0, 60, (10, 10))
PROBABILITIES = RANDOM.dirichlet(np.full(10, 0.3), 40)
TARGETS = RANDOM.integers(0, 10, 40)
LINEAR = np.linspace(-2, 2, 41)
LOGARITHMIC = np.concatenate([-np.geomspace(10, 1e-6, 36), np.geomspace(1e-6, 10, 36)])


PICTURES = {
    "filters": (draw.filters, RANDOM.normal(size=(12, 1, 3, 3))),
    "filters in colour": (draw.filters, RANDOM.normal(size=(12, 3, 3, 3))),
    "filters, many channels": (draw.filters, RANDOM.normal(size=(16, 6, 5, 5))),
    "feature maps": (draw.feature_maps, RANDOM.normal(size=(12, 7, 9))),
    "confusion matrix": (draw.confusion_matrix, COUNTS, None, CIFAR),
    "confusion matrix of large counts": (draw.confusion_matrix, np.full((12, 12), 12345)),
    "worst mistakes": (draw.worst_mistakes, RANDOM.random((40, 3, 32, 32)), TARGETS, PROBABILITIES, None, 25, CIFAR),
    "histograms": (draw.histograms, histograms_of(40, LOGARITHMIC), None, "gradients"),
    "timeline": (draw.timeline, SPANS),
    "memory": (draw.memory, SAMPLES),
}


def drawn(name, axes=None):
    """The Axes of a picture, drawn into those given."""
    function, *arguments = PICTURES[name]
    place = list(inspect.signature(function).parameters).index("axes")
    return function(*arguments[:place], axes, *arguments[place + 1 :])


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_where_it_should_and_saved(name, tmp_path):
    """Into a figure of its own, one of two Axes, or a subfigure without a layout; the arguments stay as they are."""
    before = copy.deepcopy((dict(rcParams), PICTURES[name][1:]))
    axes = drawn(name)
    assert_legible(axes)
    assert len([*ElementTree.parse(draw.save(axes, tmp_path / "picture.svg")).getroot().iter()]) > 20
    pixels = imread(draw.save(axes, tmp_path / "picture.PNG"), format="png")[..., :3]
    assert min(pixels.shape[:2]) > 100 and pixels.std() > 0.01

    left, right = Figure(figsize=(14, 12), layout="constrained").subplots(1, 2)
    assert drawn(name, left) is left and not right.lines and not right.images and not right.collections
    bare = Figure(figsize=(8, 8)).subfigures(1, 2)[0].add_subplot()
    assert drawn(name, bare) is bare
    np.testing.assert_equal((dict(rcParams), PICTURES[name][1:]), before)


# ---- each picture ------------------------------------------------------------------------------------------------


def small_pictures(axes, shape):
    """The small pictures of a grid, row by row: the parts of its one image between the gaps, which are not numbers."""
    (image,) = axes.images
    mosaic = np.ma.filled(image.get_array().astype(float), np.nan)
    runs = []
    for axis in (1, 0):
        there = np.flatnonzero(np.isfinite(mosaic).any(axis))
        runs.append(np.split(there, np.flatnonzero(np.diff(there) > 1) + 1))
    parts = [mosaic[np.ix_(rows, columns)] for rows in runs[0] for columns in runs[1]]
    steps = [length // want for length, want in zip(parts[0].shape, shape, strict=True)]
    assert len(set(steps)) == 1 and image.axes.get_aspect() != "auto"
    return [part[:: steps[0], :: steps[1]] for part in parts if np.isfinite(part).all()]


def test_filters_are_pictures_in_the_order_of_the_channels():
    for shape in [(6, 2, 3, 3), (7, 1, 5, 4), (3, 4, 1, 1)]:
        weight = RANDOM.normal(size=shape)
        axes = draw.filters(weight)
        np.testing.assert_array_equal(small_pictures(axes, shape[2:]), weight.reshape(-1, *shape[2:]))
        assert axes.images[0].get_clim() == (-np.abs(weight).max(), np.abs(weight).max())
    weight = np.zeros((2, 3, 2, 2))  # in colour
    weight[0, 0], weight[1, 2] = 1, 0.5
    array = draw.filters(weight).images[0].get_array()
    np.testing.assert_array_equal([array[0, 0], array[0, -1]], [[1, 0, 0], [0, 0, 0.5]])
    axes = draw.filters(np.ones((70, 80, 1, 1)))  # more than are drawn
    assert len(small_pictures(axes, (1, 1))) == 64 * 64
    wanted = ["in-channel c, 0 to 63 of 80", "out-channel o, 0 to 63 of 70"]
    assert [axes.get_xlabel(), axes.get_ylabel()] == wanted


def test_feature_maps_take_tensors_of_any_device():
    maps = randn(5, 3, 4, device="interpreter")
    for value in (maps, maps.tolist(), Tensor(maps.numpy(), requires_grad=True)):
        np.testing.assert_allclose(small_pictures(draw.feature_maps(value), (3, 4)), maps.numpy(), rtol=1e-6)
    assert draw.feature_maps(np.ones((1, 2, 2))).images[0].get_clim() == (0, 1)


def test_confusion_matrix_shows_counts_and_shares():
    matrix = np.array([[8, 2, 0], [0, 5, 5], [0, 0, 0]])
    axes = draw.confusion_matrix(matrix, labels=["a", "$b$", "c"])
    np.testing.assert_array_equal(axes.images[0].get_array(), [[80, 20, 0], [0, 50, 50], [0, 0, 0]])
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {(0, 0): "8", (1, 0): "2", (1, 1): "5", (2, 1): "5"}
    assert [axes.get_xlabel(), axes.get_ylabel()] == ["predicted class", "true class"]
    # A number that could not be read is not written.
    assert not draw.confusion_matrix(np.full((100, 100), 12345)).texts
    assert len(draw.confusion_matrix(np.full((20, 20), 3)).texts) == 400


def test_worst_mistakes_are_the_worst_and_in_order():
    probabilities = np.array([[0.9, 0.1, 0], [0.2, 0.7, 0.1], [0.6, 0.1, 0.3], [0.1, 0.2, 0.7]])
    targets = np.array([0, 2, 2, 0])  # the first is right; true classes got 0.1, 0.3 and 0.1
    images = np.stack([np.full((1, 2, 2), i) + np.eye(2) for i in range(4)])
    axes = draw.worst_mistakes(Tensor(images), Tensor(targets), Tensor(probabilities), labels=["a", "b", "c"])
    assert [text.get_text() for text in axes.texts] == ["c\n→ b, 70 %", "a\n→ c, 70 %", "c\n→ a, 60 %"]
    assert axes.get_title().startswith("3 of 3 mistakes")
    np.testing.assert_array_equal(small_pictures(axes, (2, 2)), [np.eye(2)] * 3)
    axes = draw.worst_mistakes(images, targets, probabilities, count=1)
    assert axes.get_title().startswith("1 of 3 ") and axes.texts[0].get_text() == "2\n→ 1, 70 %"
    (text,) = draw.worst_mistakes(images[:1], targets[:1], probabilities[:1]).texts
    assert text.get_text() == "no mistakes among 1 images"


def test_histograms_are_ridges_on_one_scale():
    both = LINEAR, 3 * LINEAR
    records = [(1, both, np.full(40, 2), None), (3, both, np.eye(40)[7] * 9, np.ones(40))]
    axes = draw.histograms(records)
    filled = [patch for patch in axes.patches if patch.get_fill()]
    assert [patch.get_data().baseline for patch in filled] == [1, 0]
    heights = [patch.get_data().values - patch.get_data().baseline for patch in filled]
    assert heights[0] == pytest.approx(np.full(40, heights[1].max() / 40))
    assert heights[1].argmax() == 7 and np.count_nonzero(heights[1]) == 1
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["3", "1"]
    axes = draw.histograms(records, quantity="gradients")  # which the first epoch has none of
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["3"] and axes.get_xlabel() == "gradient"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["-6", "-4", "-2", "0", "2", "4", "6"]
    axes = draw.histograms(histograms_of(40, LOGARITHMIC))
    assert [tick.get_text() for tick in axes.get_xticklabels()][::2] == ["-10", "-0.00019", "0.00019", "10"]
    shown = [int(tick.get_text()) for tick in axes.get_yticklabels()]
    assert len(shown) == 10 and shown[0] == 40 and shown[-1] == 1


def test_timeline_puts_bars_in_lanes():
    spans = [("host", "conv", 1.0, 1.001), ("host", "relu", 1.001, 1.002), ("device", "conv", 1.0005, 1.003)]
    axes = draw.timeline(spans)
    bars = {group.get_label(): [(*bar.get_xy(), bar.get_width()) for bar in group] for group in axes.containers}
    assert bars["conv"] == [pytest.approx((0, -0.4, 1e-3)), pytest.approx((5e-4, 0.6, 2.5e-3))]
    assert bars["relu"] == [pytest.approx((1e-3, -0.4, 1e-3))] and axes.get_xlabel() == "time"
    axes.figure.draw_without_rendering()
    assert "2 ms" in [tick.get_text() for tick in axes.get_xticklabels()]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["host", "device"]
    # The names with the most time have colours.
    axes = draw.timeline([("host", f"op {i}", i, i + 0.5 + 0.01 * i) for i in range(20)])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"op {i}" for i in range(14, 20)] + ["other"]
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}) == 7


def test_memory_stacks_its_categories():
    samples = [(5.0, {"a": 2**20}), (5.5, {"a": 2**20, "b": 3 * 2**20}), (6.0, {"b": 2**20})]
    axes = draw.memory(samples)
    (line, peak) = axes.lines
    np.testing.assert_array_equal(line.get_xydata(), [[0, 1], [0.5, 4], [1, 1]])
    assert set(peak.get_ydata()) == {4} and axes.get_title() == "peak 4 MiB"
    assert [axes.get_xlabel(), axes.get_ylabel()] == ["time", "memory (MiB)"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["b", "a"]
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in axes.collections]
    assert tops == [1, 4]
