"""What a training leaves to be looked at, and the page that shows it. A section is a function of the Report."""

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minigrad_kernels.errors import MinigradError

from .. import draw, nn
from ..checkpoint import write_atomic
from ..train import History, confusion_matrix
from ..train.team import module_of
from ..units import in_bytes
from .page import Html, bar, columns, document, escaped, listing, note, picture, table

FILTERS = 64  # drawn at most
LAYERS = 4  # whose weights and gradients are drawn at most: it takes longer than all else
DPI = 110


@dataclass
class Report:
    """The figures of a training as one page. What is not given is left out, and the page says so.

    title       heading of the page
    history     History of the training
    model       the network, with the weights that are reported
    shape       of an image, (C, H, W)
    classes     their names
    state       a sentence: whether the training is done, and where it stopped
    test        Dataset of the test images
    predictions what train.predict gives on them, unshuffled: (probabilities (N, classes), targets (N,))
    records     those of the train.Histograms callback
    profile     that of a step, as profile.measure_step gives it
    origin      {heading: {name: text}}: command, settings, versions, whatever else it takes to do it again

    Sections    result, curves, mistakes, filters, distributions, cost, model, origin
    """

    title: str
    history: History
    model: nn.Module
    shape: tuple
    classes: tuple
    state: str = ""
    test: Any = None
    predictions: tuple | None = None
    records: dict = field(default_factory=dict)
    profile: Any = None
    origin: dict = field(default_factory=dict)

    def __post_init__(self):
        self.model = module_of(self.model)

    def html(self):
        """The page as text."""
        return document(self.title, [(anchor, heading, self._written(*parts)) for anchor, heading, *parts in SECTIONS])

    def _written(self, section, missing):
        """A section: what cannot be drawn, weights that are not finite say, costs the others nothing."""
        try:
            return section(self) or note(missing)
        except MinigradError as error:
            return note(f"This could not be drawn: {error}")

    def save(self, path):
        """Write the page to a file, in place of one that is there, in one step."""
        write_atomic(Path(path), self.html().encode())


# ---- sections: HTML, or None where there is nothing to show ----------------------------------------------------------


def _result(report):
    """The figures that one looks for first."""
    history, figures = report.history, {}
    tested = [row for row in history.rows if row.get("test_accuracy") is not None]
    if tested:
        last, best = tested[-1], max(tested, key=lambda row: row["test_accuracy"])
        figures |= {"test accuracy": _percent(last["test_accuracy"]), "test loss": f"{last['test_loss']:.4f}"}
        if best["test_accuracy"] > last["test_accuracy"]:
            figures[f"best test accuracy (epoch {best['epoch']})"] = _percent(best["test_accuracy"])
    for row in history.rows[-1:]:
        figures |= {"training accuracy": _percent(row["accuracy"]), "training loss": f"{row['loss']:.4f}"}
    if speeds := list(filter(None, history["images_per_second"])):
        figures["images/s (median)"] = f"{statistics.median(speeds):,.0f}"
    count = sum(parameter.numel() for parameter in report.model.parameters())
    figures |= {"epochs": len(history), "updates": f"{history.steps:,}", "parameters": f"{count:,}"}
    return listing(figures, "tiles") + (note(report.state) if report.state else "")


def _curves(report):
    """Loss and accuracy over the epochs, and the figures themselves."""
    if not len(report.history):
        return None
    captions = {"loss": "Loss: mean over the images of an epoch.", "accuracy": "Share of images that are right."}
    drawn = [picture(draw.learning_curve(report.history, None, name), text) for name, text in captions.items()]
    remark = "Those on training images are taken while the weights change, with dropout and augmentation."
    names = report.history.columns()
    rows = [[_figure(row.get(name)) for name in names] for row in report.history.rows]
    return columns(*drawn) + note(remark) + table([[name.replace("_", " ") for name in names], *rows], words=0)


def _mistakes(report):
    """Which class is taken for which, and the images whose right class got the least probability."""
    if report.predictions is None:
        return None
    probabilities, targets = report.predictions
    matrix = confusion_matrix(targets, probabilities.argmax(1), len(report.classes))
    total, right = int(matrix.sum()), int(matrix.trace())
    said = f"With the weights as they are after update {report.history.steps:,}, {right:,} of {total:,} test images "
    said += f"are right: {_percent(right / total)}."
    drawn = [picture(draw.confusion_matrix(matrix, None, report.classes), "Confusion matrix: counts of test images.")]
    if right < total and report.test is not None:
        axes = draw.worst_mistakes(report.test.images, targets, probabilities, labels=report.classes)
        drawn.append(picture(axes, "The worst mistakes: least probability for the true class.", DPI))
    rows = [["class", "most often taken for", "test images", "found (recall)", "precision"]]
    for i, name in enumerate(report.classes):
        there, predicted, found = matrix[i].sum(), matrix[:, i].sum(), matrix[i, i]
        wrong = np.where(np.arange(len(matrix)) == i, 0, matrix[i])
        taken = f"{report.classes[wrong.argmax()]} ({wrong.max()})" if wrong.any() else "-"
        recall = bar(found / there, _percent(found / there)) if there else "-"
        rows.append([name, taken, f"{there:,}", recall, _percent(found / predicted) if predicted else "-"])
    return note(said) + columns(*drawn) + table(rows, words=2)


def _filters(report):
    """The weights that multiply the pixels: of the first layer with weights, if they lie as pixels do."""
    found = (pair for pair in report.model.named_modules() if list(pair[1].parameters(recurse=False)))
    path, module = next(found, ("", None))
    if isinstance(module, nn.Conv2d):
        weight = module.weight.detach().numpy()
    elif isinstance(module, nn.Linear) and module.in_features == np.prod(report.shape):
        weight = module.weight.detach().numpy().reshape(-1, *report.shape)
    else:
        return None
    more = f", the first {FILTERS} of {len(weight)}" if len(weight) > FILTERS else ""
    return columns(picture(draw.filters(weight[:FILTERS]), f"Weights of layer {_named(path, module)}{more}.", DPI))


def _named(path, module):
    return f"{path} ({type(module).__name__})" if path else type(module).__name__


def _distributions(report):
    """Histograms of weights and gradients of some layers, epoch by epoch."""
    parameters, modules = dict(report.model.named_parameters()), dict(report.model.named_modules())
    names = [name for name in report.records if name in parameters and parameters[name].ndim > 1]
    if not names:
        return None
    drawn = []
    for place in np.linspace(0, len(names) - 1, min(len(names), LAYERS)).round().astype(int):
        rows, layer = report.records[names[place]], names[place].rpartition(".")[0]
        for column, quantity in enumerate(("weights", "gradients"), 2):
            if any(row[column] is not None for row in rows):
                axes = draw.histograms(rows, None, quantity)
                drawn.append(picture(axes, f"{quantity.capitalize()} of layer {_named(layer, modules[layer])}.", DPI))
    text = "After each epoch; gradients are those of its last update, on a logarithmic scale on either side of 0: what "
    text += "stands in the middle is 0 or nearly so. What lies beyond the edges is counted at them."
    if len(names) > LAYERS:
        text += f" {LAYERS} of {len(names)} layers are shown."
    return note(text) + columns(*drawn)


def _cost(report):
    """Time and memory of one training step, by layer."""
    if report.profile is None:
        return None
    text = f"One training step. It took {1e3 * report.profile.seconds:.3f} ms while it was watched, which takes time "
    text += "too. Where layers ran as one, the first has the time of all: self is forward and backward, kernels the "
    text += "part of it in compiled kernels. Bytes are those of results and gradients; memory is kept for backward."
    drawn = ""
    if len(report.profile.memory) > 1:
        fullest = ", ".join(f"{name} {in_bytes(size)}" for name, size in report.profile.peak()[0].items() if size)
        caption = f"Memory over the step. Where it was fullest: {fullest}."
        drawn = columns(picture(draw.memory(report.profile.memory), caption))
    return note(text) + table(*report.profile.cells("layer")) + drawn


def _network(report):
    """The layers, with what they cost for one image."""
    found = nn.summary(report.model, (1, *report.shape))
    trainable = f"{found.trainable:,} of {found.parameters:,} parameters are trained."
    return note(trainable) + table(found.cells(), words=3, total=True)


def _origin(report):
    """All that it takes to do it again."""
    return Html("".join(f"<h3>{escaped(name)}</h3>\n{listing(entries)}" for name, entries in report.origin.items()))


def _percent(share):
    return f"{100 * share:.2f} %"


def _figure(value):
    """A number with three digits, whole from 100 on."""
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


NO_PIXELS = "The first layer with weights does not look at pixels as they lie in the image."
SECTIONS = (  # anchor, heading, content, what is said where there is none
    ("result", "", _result, ""),
    ("curves", "Learning curves", _curves, "No epoch is done yet."),
    ("mistakes", "What it gets wrong", _mistakes, "The test images were not looked at."),
    ("filters", "What the first layer looks for", _filters, NO_PIXELS),
    ("distributions", "Weights and gradients over the epochs", _distributions, "They were not counted."),
    ("cost", "Where time and memory go", _cost, "No step was measured."),
    ("model", "The network", _network, ""),
    ("origin", "How it was made", _origin, "Nothing was noted."),
)
