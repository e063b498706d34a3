"""The sections of a report, as HTML: each a function of the Report."""

import statistics

import numpy as np

from .. import draw, nn
from ..train import confusion_matrix
from .page import Html, bar, columns, escaped, listing, note, picture, table

__all__ = ["cost", "curves", "distributions", "filters", "mistakes", "network", "origin", "result"]

FILTERS = 64  # drawn at most
LAYERS, EPOCHS = 4, 8  # whose weights and gradients are drawn at most: it takes longer than all else
DPI = 110


def result(report):
    """The figures that one looks for first."""
    history, figures = report.history, {}
    if len(history):
        row = history[-1]
        if row.get("test_accuracy") is not None:
            figures |= {"test accuracy": percent(row["test_accuracy"]), "test loss": f"{row['test_loss']:.4f}"}
            best = max(history.rows, key=lambda row: row.get("test_accuracy") or 0)
            if best["test_accuracy"] > row["test_accuracy"]:
                figures[f"best test accuracy (epoch {best['epoch']})"] = percent(best["test_accuracy"])
        figures |= {"training accuracy": percent(row["accuracy"]), "training loss": f"{row['loss']:.4f}"}
        speeds = [speed for speed in history["images_per_second"] if speed]
        if speeds:
            figures["images/s (median)"] = f"{statistics.median(speeds):,.0f}"
    figures |= {"epochs": len(history), "updates": f"{history.steps:,}"} | report.figures
    return listing(figures.items(), "tiles") + (note(report.state) if report.state else "")


def curves(report):
    """Loss and accuracy over the epochs, and the figures themselves."""
    if not len(report.history):
        return note("No epoch is done yet.")
    captions = {"loss": "Loss: mean over the images of an epoch.", "accuracy": "Share of images that are right."}
    drawn = [picture(draw.learning_curve(report.history, None, name), text) for name, text in captions.items()]
    remark = "Those on training images are taken while the weights change, with dropout and augmentation."
    names = report.history.columns()
    rows = [[_figure(row.get(name)) for name in names] for row in report.history.rows]
    return columns(*drawn) + note(remark) + table([name.replace("_", " ") for name in names], rows, words=0)


def mistakes(report):
    """Which class is taken for which, and the images whose right class got the least probability."""
    if report.predictions is None:
        return "" if "mistakes" in report.lacking else note("The test images were not looked at.")
    probabilities, targets = report.predictions
    matrix = confusion_matrix(targets, probabilities.argmax(1), len(report.classes))
    total, right = int(matrix.sum()), int(matrix.trace())
    said = f"With the weights as they are after update {report.history.steps:,}, {right:,} of {total:,} test images "
    drawn = picture(draw.confusion_matrix(matrix, None, report.classes), "Confusion matrix: counts of test images.")
    worst = ""
    if right < total and report.test is not None:
        axes = draw.worst_mistakes(report.test.images, targets, probabilities, labels=report.classes)
        worst = picture(axes, "The worst mistakes: least probability for the true class.", DPI)
    said += f"are right: {percent(right / total)}."
    return note(said) + columns(drawn, worst) + _by_class(matrix, report.classes)


def _by_class(matrix, classes):
    rows = []
    for number, (name, counts) in enumerate(zip(classes, matrix, strict=True)):
        total, right = int(counts.sum()), int(counts[number])
        share = right / total if total else 0.0
        others = np.where(np.arange(len(classes)) == number, 0, counts)
        often = int(others.argmax())
        taken = f"{classes[often]} ({others[often]})" if others[often] else "-"
        predicted = int(matrix[:, number].sum())
        precision = percent(right / predicted) if predicted else "-"
        rows.append([name, taken, f"{total:,}", bar(share, percent(share) if total else "-"), precision])
    return table(["class", "most often taken for", "test images", "found (recall)", "precision"], rows, words=2)


def filters(report):
    """The weights that multiply the pixels."""
    name, weight = _first_weight(report.model, report.shape)
    if weight is None:
        return note("The first layer with weights does not look at pixels as they lie in the image.")
    more = f", the first {FILTERS} of {len(weight)}" if len(weight) > FILTERS else ""
    return columns(picture(draw.filters(weight[:FILTERS]), f"Weights of layer {name}{more}.", DPI))


def _first_weight(model, shape):
    """(name, array (O, C, p, q)) of the first layer if its weights lie as pixels do, else (None, None)."""
    for path, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            return _named(path, module), module.weight.detach().numpy()
        if isinstance(module, nn.Linear) and module.in_features == np.prod(shape):
            return _named(path, module), module.weight.detach().numpy().reshape(-1, *shape)
        if module._parameters and any(parameter is not None for parameter in module._parameters.values()):
            break
    return None, None


def _named(path, module):
    return f"{path} ({type(module).__name__})" if path else type(module).__name__


def distributions(report):
    """Histograms of weights and gradients of some layers, epoch by epoch."""
    parameters = dict(report.model.named_parameters())
    names = [name for name in report.records if name in parameters and parameters[name].ndim > 1]
    if not names:
        return "" if "distributions" in report.lacking else note("They were not counted.")
    kept = _spread(names, LAYERS)
    modules = dict(report.model.named_modules())
    drawn = []
    for name in kept:
        layer = name.rpartition(".")[0]
        rows = _spread(report.records[name], EPOCHS)
        for quantity in ("weights", "gradients"):
            if any(row[2 + (quantity == "gradients")] is not None for row in rows):
                axes = draw.histograms(rows, None, quantity)
                drawn.append(picture(axes, f"{quantity.capitalize()} of layer {_named(layer, modules[layer])}.", DPI))
    text = "After each epoch; gradients are those of its last update, on a logarithmic scale on either side of 0: what "
    text += "stands in the middle is 0 or nearly so. What lies beyond the edges is counted at them."
    if len(kept) < len(names):
        text += f" {len(kept)} of {len(names)} layers are shown."
    return note(text) + columns(*drawn)


def _spread(values, count):
    """At most so many of them, the first, the last, and others evenly between."""
    return [values[at] for at in sorted({round(at) for at in np.linspace(0, len(values) - 1, min(len(values), count))})]


def cost(report):
    """Time and memory of one training step, by layer."""
    if report.profile is None:
        return "" if "cost" in report.lacking else note("No step was measured.")
    rows, peak = report.profile.rows("layer"), report.profile.peak()[0]
    device = any(row.device for row in rows)
    longest = max((row.self for row in rows), default=0) or 1
    lines = []
    for row in rows:
        times = [_ms(row.forward), _ms(row.backward), bar(row.self / longest, _ms(row.self)), percent(row.share)]
        sizes = (f"{count / 1024:,.1f}" for count in (row.bytes, row.memory, row.parameters))
        lines.append([row.name, row.type, *times, *[_ms(row.device)] * device, *sizes])
    head = ["layer", "type", "forward, ms", "backward, ms", "both, ms", "share"] + ["GPU, ms"] * device
    head += ["results, KiB", "kept, KiB", "parameters, KiB"]
    fullest = ", ".join(f"{name} {size / (1 << 20):.2f} MiB" for name, size in peak.items() if size)
    caption = f"Memory over the step. Where it was fullest: {fullest}."
    drawn = columns(picture(draw.memory(report.profile.memory), caption)) if len(report.profile.memory) > 1 else ""
    text = f"{report.measured} It took {_ms(report.profile.seconds)} ms while it was watched, which takes time too. "
    more = "Where layers ran as one, the first has the time of all. Results include gradients; what is kept waits for "
    more += "backward."
    return note(text + more) + table(head, lines, words=2) + drawn


def _ms(seconds):
    return f"{1e3 * seconds:.3f}"


def network(report):
    """The layers, with what they cost for one image."""
    found = nn.summary(report.model, (1, *report.shape))
    rows = [
        [row.path, row.kind, "-" if row.shape is None else " x ".join(map(str, row.shape[1:])), *_counts(row)]
        for row in found.rows
    ]
    rows.append(["total", "", "", *_counts(found)])
    head = ["layer", "type", "output of an image", "parameters", "multiply-adds", "output bytes"]
    trainable = f"{found.trainable:,} of {found.parameters:,} parameters are trained."
    return note(trainable) + table(head, rows, words=3, total=True)


def _counts(row):
    return [f"{count:,}" for count in (row.parameters, row.macs, row.nbytes)]


def origin(report):
    """All that it takes to do it again."""
    if not report.origin:
        return note("Nothing was noted.")
    parts = (f"<h3>{escaped(heading)}</h3>\n{listing(entries.items())}" for heading, entries in report.origin.items())
    return Html("".join(parts))


def percent(share):
    return f"{100 * share:.2f} %"


def _figure(value):
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else f"{value:,}"
