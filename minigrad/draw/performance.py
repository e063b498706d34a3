"""Where time and memory go: a timeline, memory over a step."""

import numpy as np

from minigrad_kernels.errors import ShapeError

from ..units import SIZES
from .style import COLORS, HATCH, HATCHES, axes_of, laid_out, plain

__all__ = ["memory", "timeline"]

MOST_NAMES = 6  # that have a colour of their own in a timeline


def timeline(spans, axes=None):
    """Draw what ran when, one lane below the other; returns the Axes.

    spans   (lane, name, begin, end), times in seconds. Lanes stand in the order of their first span; spans of a lane
            that overlap, as a layer and its operations do, are put below each other
    The names with the most time have colours of their own; all others are grey.
    Errors  ValueError for no spans
    """
    from matplotlib.ticker import EngFormatter

    if not spans:
        raise ShapeError("timeline: spans is empty, so there is nothing to draw")
    placed, lanes = _rows(spans)
    start = min(span[2] for span in spans)
    length = max(span[3] for span in spans) - start
    count = sum(rows for _, rows in lanes.values())
    axes = axes_of("timeline", axes, 9, 1.4 + 0.4 * count)
    styles = _styles(spans)
    for name, style in styles.items():
        shown = [span for span in placed if (span[1] if span[1] in styles else None) == name]
        begins, ends, rows = np.array([span[2:] for span in shown]).T
        label = "other" if name is None else plain(name)
        axes.barh(rows, ends - begins, left=begins - start, edgecolor=HATCH, linewidth=0.5, label=label, **style)
    axes.set_yticks([first + (rows - 1) / 2 for first, rows in lanes.values()], [plain(lane) for lane in lanes])
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.set(xlabel="time", xlim=(0, length or 1), ylim=(count - 0.4, -0.6))
    for first, _ in list(lanes.values())[1:]:
        axes.axhline(first - 0.5, color="#999999", linewidth=0.8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    longest = max(len("other" if name is None else str(name)) for name in styles)
    columns = int(laid_out(axes)[0] // (6.5 * longest + 45))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=max(1, min(4, columns)), frameon=False)
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
    axes = axes_of("memory", axes, 7.5, 4)
    style = {"labels": map(plain, names), "colors": COLORS, "hatch": HATCHES, "edgecolor": HATCH, "linewidth": 0}
    axes.stackplot(times, sizes / unit, step="post", **style)
    axes.step(times, total, where="post", color="black", linewidth=1)
    axes.axhline(total.max(), color="black", linestyle="--", linewidth=0.8)
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.set(xlabel="time", ylabel=f"memory ({symbol})", xlim=(0, times[-1]), ylim=(0, 1.08 * total.max() or 1))
    axes.set_title(f"peak {total.max():.3g} {symbol}", fontsize="medium")
    axes.legend(reverse=True, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return axes


def _rows(spans):
    """(each span with the row that it is drawn in, {lane: (first row, rows)})."""
    placed, lanes, first = [], {}, 0
    for lane in dict.fromkeys(span[0] for span in spans):
        ends = []
        for span in sorted((span for span in spans if span[0] == lane), key=lambda span: (span[2], -span[3])):
            row = next((row for row, end in enumerate(ends) if end <= span[2]), len(ends))
            ends[row : row + 1] = [span[3]]
            placed.append((*span, first + row))
        lanes[lane] = first, len(ends)
        first += len(ends)
    return placed, lanes


def _styles(spans):
    """{name: its look} for the names with the most time, and for None, which is all others."""
    seconds = {}
    for _, name, begin, end in spans:
        seconds[name] = seconds.get(name, 0) + end - begin
    most = sorted(seconds, key=seconds.get, reverse=True)[:MOST_NAMES]
    shown = [name for name in seconds if name in most]  # in the order in which they come first
    styles = {name: {"color": COLORS[i], "hatch": HATCHES[i]} for i, name in enumerate(shown)}
    return styles | ({None: {"color": "#BBBBBB"}} if len(seconds) > len(most) else {})
