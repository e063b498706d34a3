"""Charts: learning curves, what a network confuses, how weights and gradients lie, where time and memory go."""

import math

import numpy as np

from minigrad_kernels.errors import ShapeError

from ..core.check import one_of
from ..units import SIZES
from .style import COLORS, HATCH, HATCHES, array_of, axes_of, color_bar, labels_of, laid_out, plain

__all__ = ["confusion_matrix", "histograms", "learning_curve", "memory", "timeline"]

LABELS = {"loss": "loss", "accuracy": "accuracy (%)"}
QUANTITIES = ("weights", "gradients")
MOST_RIDGES = 10
MOST_NAMES = 6  # that have a colour of their own in a timeline


def learning_curve(history, axes=None, quantity="loss"):
    """Draw the loss or accuracy on training and test data over the epochs of a History; returns the Axes.

    axes        matplotlib Axes to draw into; a new figure without a window where None
    quantity    "loss" or "accuracy"
    Errors  ValueError for another quantity or an empty history
    """
    one_of("learning_curve", "quantity", quantity, LABELS)
    if not len(history):
        raise ShapeError("learning_curve: history has no epochs")
    from matplotlib.ticker import MaxNLocator

    axes = axes_of(axes, 6, 4)
    scale = 100 if quantity == "accuracy" else 1
    for name, key, style, color in (("train", quantity, "-", COLORS[0]), ("test", f"test_{quantity}", "--", COLORS[1])):
        values = [math.nan if value is None else scale * value for value in history[key]]
        if any(map(math.isfinite, values)):
            marker = "o" if len(values) <= 30 else None
            axes.plot(history["epoch"], values, style, marker=marker, markersize=3, label=name, color=color)
    axes.set(xlabel="epoch", ylabel=LABELS[quantity])
    if len(history) == 1:
        axes.set_xlim(history[0]["epoch"] - 0.5, history[0]["epoch"] + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.grid(alpha=0.3)
    # Above the frame, where no curve can pass.
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    return axes


def confusion_matrix(matrix, axes=None, labels=None):
    """Draw how often each class was taken for which: counts as numbers, shares of the row as colour; returns the Axes.

    matrix  (classes, classes) counts: a row is a true class, a column a predicted one
    labels  names of the classes instead of their numbers
    Errors  ValueError for another shape, or for more or fewer labels than classes
    """
    op = "confusion_matrix"
    matrix = array_of(op, "matrix", matrix, ("classes", "classes"))
    count, labels = len(matrix), labels_of(labels, len(matrix))
    if matrix.shape[1] != count:
        raise ShapeError(f"{op}: matrix has shape {matrix.shape}, wanted as many columns as rows")
    shares = 100 * matrix / np.maximum(matrix.sum(1, keepdims=True), 1e-30)
    axes = axes_of(axes, 6.4, 5.4)
    color_bar(axes.imshow(shares, cmap="Blues", vmin=0, vmax=100), "share of the true class (%)")
    ticks = range(0, count, max(1, -(-count // 20)))
    axes.set(xlabel="predicted class", ylabel="true class")
    width, height = laid_out(axes)
    long = 8 * sum(len(labels[i]) + 1 for i in ticks) > width
    axes.set_xticks(ticks, [labels[i] for i in ticks], rotation=45 if long else 0, ha="right" if long else "center")
    axes.set_yticks(ticks, [labels[i] for i in ticks])
    texts = {(i, j): f"{matrix[i, j]:g}" for i, j in np.argwhere(matrix)}
    cell = min(width, height) / count  # points
    size = min(10, 0.5 * cell, 1.35 * cell / max(map(len, texts.values()), default=1))
    for (i, j), text in texts.items() if size >= 4 else ():  # where it can be read
        color = "white" if shares[i, j] > 55 else "black"
        axes.text(j, i, text, ha="center", va="center", fontsize=size, color=color)
    return axes


def histograms(records, axes=None, quantity="weights"):
    """Draw how a layer's weights or gradients are distributed, one ridge for an epoch; returns the Axes.

    records     of one parameter, as train.Histograms has them: (epoch, edges, counts of weights, counts of gradients)
                for each epoch. edges is the pair of those for weights and for gradients; counts[i] elements lie
                between edges[i] and edges[i + 1]; counts are None where there were none. All epochs have the same edges
    quantity    "weights" or "gradients"
    Units   the height of a ridge is the share of the elements, on one scale for all; of more than 10 epochs, 10 evenly
            spaced ones are drawn. All bins are drawn with one width, so the axis is as the edges are, logarithmic say
    Errors  ValueError for no records or another quantity
    """
    op = "histograms"
    place, rows = QUANTITIES.index(one_of(op, "quantity", quantity, QUANTITIES)), []
    for epoch, edges, *counts in records:
        if counts[place] is not None:
            rows.append((epoch, edges[place], np.asarray(counts[place]) / (np.sum(counts[place]) or 1)))
    if not rows:
        raise ShapeError(f"{op}: records has no epoch with {quantity}")
    rows = [rows[round(i)] for i in np.linspace(0, len(rows) - 1, min(len(rows), MOST_RIDGES))]
    from matplotlib.colors import to_rgba
    from matplotlib.patches import StepPatch

    axes = axes_of(axes, 6, 1.5 + 0.3 * len(rows))
    tallest, bins = max(shares.max() for _, _, shares in rows) or 1, len(rows[0][2])
    for i, (_, _, shares) in enumerate(rows):
        # The newest epoch is at the bottom and in front, so that no ridge hides one that is drawn later.
        base = len(rows) - 1 - i
        curve = base + 1.6 * shares / tallest
        style = {"facecolor": to_rgba(COLORS[5], 0.75), "edgecolor": COLORS[0], "linewidth": 0.9}
        # Not axes.stairs, which takes longer to find out the limits, set below, than all the rest does.
        axes.add_artist(StepPatch(curve, np.arange(bins + 1), baseline=base, fill=True, zorder=2 + 0.01 * i, **style))
    ticks = np.linspace(0, bins, 7)
    axes.set_xticks(ticks, [f"{edge:.2g}" for edge in np.interp(ticks, np.arange(bins + 1), rows[0][1])])
    axes.set_yticks(range(len(rows)), [f"{epoch}" for epoch, _, _ in reversed(rows)])
    axes.set(xlabel=quantity.removesuffix("s"), ylabel="epoch", xlim=(0, bins), ylim=(-0.2, len(rows) + 0.8))
    axes.grid(axis="x", alpha=0.3)
    return axes


# ---- time and memory -------------------------------------------------------------------------------------------------


def timeline(spans, axes=None):
    """Draw what ran when, one lane below the other; returns the Axes.

    spans   (lane, name, begin, end), times in seconds. Lanes stand in the order of their first span; where spans of a
            lane overlap, the later one is in front
    The names with the most time have colours of their own; all others are grey.
    Errors  ValueError for no spans
    """
    from matplotlib.ticker import EngFormatter

    if not spans:
        raise ShapeError("timeline: spans is empty, so there is nothing to draw")
    lanes, seconds = [*dict.fromkeys(lane for lane, *_ in spans)], {}
    for _, name, begin, end in spans:
        seconds[name] = seconds.get(name, 0) + end - begin
    most = sorted(seconds, key=seconds.get, reverse=True)[:MOST_NAMES]
    groups, looks = {}, [*zip(COLORS, HATCHES, strict=False)][: len(most)] + [("#BBBBBB", "")]
    for span in sorted(spans, key=lambda span: span[1] not in most):  # the others last
        groups.setdefault(plain(span[1]) if span[1] in most else "other", []).append(span)
    start, last = min(begin for *_, begin, _ in spans), max(end for *_, end in spans)
    axes = axes_of(axes, 11, 1.6 + 0.4 * len(lanes))
    for (name, found), (color, hatch) in zip(groups.items(), looks, strict=False):
        rows, begins = [lanes.index(lane) for lane, *_ in found], [begin - start for *_, begin, _ in found]
        style = {"color": color, "hatch": hatch, "edgecolor": HATCH, "linewidth": 0.5, "label": name}
        axes.barh(rows, [end - begin for *_, begin, end in found], left=begins, **style)
    axes.set_yticks(range(len(lanes)), map(plain, lanes))
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.set(xlabel="time", xlim=(0, last - start or 1), ylim=(len(lanes) - 0.4, -0.6))
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return axes


def memory(samples, axes=None):
    """Draw the memory in use over time as one area above the other; returns the Axes.

    samples     (seconds, {category: bytes}) in the order of time; a category that is missing has 0 bytes. What was
                measured holds until the next sample
    Errors  ValueError for fewer than two samples
    """
    if len(samples) < 2:
        raise ShapeError(f"memory: {len(samples)} samples, wanted two or more")
    from matplotlib.ticker import EngFormatter

    times = np.array([seconds for seconds, _ in samples]) - samples[0][0]
    names = dict.fromkeys(name for _, sizes in samples for name in sizes)
    sizes = np.array([[found.get(name, 0) for _, found in samples] for name in names])
    unit, symbol = next((unit for unit in SIZES if sizes.sum(0).max() >= unit[0]), SIZES[-1])
    total = sizes.sum(0) / unit
    axes = axes_of(axes, 7.5, 4)
    style = {"labels": map(plain, names), "colors": COLORS, "hatch": HATCHES, "edgecolor": HATCH, "linewidth": 0}
    axes.stackplot(times, sizes / unit, step="post", **style)
    axes.step(times, total, where="post", color="black", linewidth=1)
    axes.axhline(total.max(), color="black", linestyle="--", linewidth=0.8)
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.set(xlabel="time", ylabel=f"memory ({symbol})", xlim=(0, times[-1]), ylim=(0, 1.08 * total.max() or 1))
    axes.set_title(f"peak {total.max():.3g} {symbol}", fontsize="medium")
    axes.legend(reverse=True, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return axes
