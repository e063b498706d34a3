"""How a training went: its learning curve, what the network confuses, how weights and gradients are distributed."""

import math

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from .style import COLORS, array_of, axes_of, color_bar, figure_of, labels_of, laid_out

__all__ = ["confusion_matrix", "histograms", "learning_curve", "save_learning_curve"]

LABELS = {"loss": "loss", "accuracy": "accuracy (%)"}

QUANTITIES = ("weights", "gradients")
MOST_RIDGES = 16


def learning_curve(history, axes=None, quantity="loss"):
    """Draw the loss or accuracy on training and test data over the epochs of a History; returns the Axes.

    axes        matplotlib Axes to draw into; a new figure without a window where None
    quantity    "loss" or "accuracy"
    Errors  ValueError for another quantity or an empty history, TypeError for what is no History
    """
    if quantity not in LABELS:
        raise ShapeError(f"learning_curve: quantity is {quantity!r}, want one of {', '.join(LABELS)}")
    if not hasattr(history, "columns"):
        raise KindError(f"learning_curve: history is a {type(history).__name__}, want a train.History")
    if not len(history):
        raise ShapeError("learning_curve: history has no epochs")
    from matplotlib.ticker import MaxNLocator

    axes = axes_of("learning_curve", axes, 6, 4)
    scale = 100 if quantity == "accuracy" else 1
    for name, key, style, color in (("train", quantity, "-", COLORS[0]), ("test", f"test_{quantity}", "--", COLORS[1])):
        values = [math.nan if value is None else scale * value for value in history[key]]
        if any(map(math.isfinite, values)):
            marker = "o" if len(values) <= 30 else None
            axes.plot(history["epoch"], values, style, marker=marker, markersize=3, label=name, color=color)
    axes.set_xlabel("epoch")
    axes.set_ylabel(LABELS[quantity])
    if len(history) == 1:
        axes.set_xlim(history[0]["epoch"] - 0.5, history[0]["epoch"] + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.grid(alpha=0.3)
    # Above the frame, where no curve can pass.
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    return axes


def save_learning_curve(history, file):
    """Write loss and accuracy, side by side, as a PNG picture to a path or a binary file."""
    figure = figure_of(10, 4)
    for axes, quantity in zip(figure.subplots(1, 2), LABELS, strict=True):
        learning_curve(history, axes, quantity)
    figure.savefig(file, format="png", dpi=120)


def confusion_matrix(matrix, axes=None, labels=None):
    """Draw how often each class was taken for which: counts as numbers, shares of the row as colour; returns the Axes.

    matrix  (classes, classes) counts: a row is a true class, a column a predicted one
    labels  names of the classes instead of their numbers
    Errors  ValueError for another shape, or for more or fewer labels than classes
    """
    op = "confusion_matrix"
    matrix = array_of(op, "matrix", matrix, ("classes", "classes"))
    if matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"{op}: matrix has shape {matrix.shape}, wanted as many columns as rows")
    count = len(matrix)
    labels = labels_of(op, labels, count)
    totals = matrix.sum(1, keepdims=True)
    shares = 100 * matrix / np.where(totals, totals, 1)
    axes = axes_of(op, axes, 6.4, 5.4)
    shown = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
    color_bar(shown, "share of the true class (%)")
    ticks = range(0, count, max(1, -(-count // 20)))
    axes.set(xlabel="predicted class", ylabel="true class")
    long = 8 * sum(len(labels[i]) + 1 for i in ticks) > laid_out(axes)[0]
    axes.set_xticks(ticks, [labels[i] for i in ticks], rotation=45 if long else 0, ha="right" if long else "center")
    axes.set_yticks(ticks, [labels[i] for i in ticks])
    _write_counts(axes, matrix, shares)
    return axes


def _write_counts(axes, matrix, shares):
    """The counts into their cells, where they can be read."""
    texts = [[f"{count:.0f}" if count == round(count) else f"{count:.3g}" for count in row] for row in matrix]
    cell = min(laid_out(axes)) / len(matrix)  # points
    size = min(10, 0.5 * cell, 1.35 * cell / max(len(text) for row in texts for text in row))
    if size < 4:
        return
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            if matrix[i, j]:
                color = "white" if shares[i, j] > 55 else "black"
                axes.text(j, i, text, ha="center", va="center", fontsize=size, color=color)


def histograms(records, axes=None, quantity="weights"):
    """Draw how a layer's weights or gradients are distributed, one ridge for an epoch; returns the Axes.

    records     of one parameter, as train.Histograms has them: (epoch, edges, counts of weights, counts of gradients)
                for each epoch. edges is the pair of those for weights and for gradients; counts[i] elements lie
                between edges[i] and edges[i + 1]; counts are None where there were none
    quantity    "weights" or "gradients"
    Units   the height of a ridge is the share of the elements, on one scale for all; of more than 16 epochs, 16 evenly
            spaced ones are drawn. Edges that are not evenly spaced are drawn on a logarithmic axis through 0
    Errors  ValueError for no records or another quantity
    """
    op = "histograms"
    if quantity not in QUANTITIES:
        raise ShapeError(f"{op}: quantity is {quantity!r}, wanted one of {', '.join(QUANTITIES)}")
    place, rows = QUANTITIES.index(quantity), []
    for epoch, edges, *counts in records:
        if counts[place] is not None:
            rows.append((epoch, np.asarray(edges[place]), np.asarray(counts[place]) / (np.sum(counts[place]) or 1)))
    if not rows:
        raise ShapeError(f"{op}: records has no epoch with {quantity}")
    rows = [rows[round(i)] for i in np.linspace(0, len(rows) - 1, min(len(rows), MOST_RIDGES))]
    from matplotlib.colors import to_rgba
    from matplotlib.patches import StepPatch

    axes = axes_of(op, axes, 6, 1.5 + 0.3 * len(rows))
    tallest = max(shares.max() for _, _, shares in rows) or 1
    for i, (_, edges, shares) in enumerate(rows):
        # The newest epoch is at the bottom and in front, so that no ridge hides one that is drawn later.
        base = len(rows) - 1 - i
        curve = base + 1.6 * shares / tallest
        style = {"facecolor": to_rgba(COLORS[5], 0.75), "edgecolor": COLORS[0], "linewidth": 0.9}
        # Not axes.stairs, which takes longer to find out the limits, set below, than all the rest does.
        axes.add_artist(StepPatch(curve, edges, baseline=base, fill=True, zorder=2 + 0.01 * i, **style))
    _scale(axes, rows)
    axes.set_yticks(range(len(rows)), [f"{epoch}" for epoch, _, _ in reversed(rows)])
    axes.set(xlabel=quantity.removesuffix("s"), ylabel="epoch", ylim=(-0.2, len(rows) + 0.8))
    axes.grid(axis="x", alpha=0.3)
    return axes


def _scale(axes, rows):
    """The axis of values: linear where the bins are, else logarithmic on both sides of 0."""
    edges = rows[0][1]
    widths = np.diff(edges)
    low, high = (f([row[1][end] for row in rows]) for f, end in ((min, 0), (max, -1)))
    if widths.max() > 1.01 * widths.min():
        smallest = np.abs(edges[edges != 0]).min()
        axes.set_xscale("symlog", linthresh=smallest, linscale=0.5)
        powers = np.arange(math.ceil(math.log10(smallest)), math.ceil(math.log10(max(-low, high))))
        powers = powers[:: -max(1, -(-len(powers) // 4))]  # from the largest down; the smallest would touch 0
        ticks = 10.0 ** powers[powers > math.log10(smallest) + 1]
        axes.set_xticks([*-ticks, 0.0, *ticks])
        axes.xaxis.minorticks_off()
    axes.set_xlim(low, high)
