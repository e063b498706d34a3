"""How weights and gradients are distributed, epoch by epoch."""

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from ..device import host
from ..nn import Module
from .callback import Callback
from .team import module_of

__all__ = ["Histograms"]

BINS = 65  # odd, so that exact zeros lie in the middle of a bin
MARGIN = 2.0  # of the largest weight after the first epoch
SMALLEST, LARGEST = -5, 1  # powers of 10 between which gradients are told apart, of the largest after the first epoch


class Histograms(Callback):
    """A callback that counts the weights and the latest gradients of each parameter after each epoch.

    records     {name: [(epoch, edges, counts of weights, counts of gradients), ...]}; records[name] is what
                draw.histograms draws. edges is the pair (edges for weights, edges for gradients)

    Bins lie symmetrically about 0. Those of weights have equal widths and reach to twice the largest magnitude after
    the first epoch recorded; those of gradients, which grow and vanish by orders of magnitude, have equal widths on a
    logarithmic scale, from 1e-5 to 10 times the largest magnitude, with one around 0 for what is smaller. They then
    stay, so that epochs can be compared; what lies beyond is counted in the outermost ones. Gradients are those of the
    last update, before clipping. Counts are None where there is nothing to count: no gradient (with ZeRO none is kept
    whole), or elements that are not finite.

    model       what is trained; of a DataParallel the names are those of its module
    bins        how many, an odd number, so that 0 is the middle of one

    Shapes  edges (bins + 1,) each, counts (bins,)
    Errors  TypeError if model is no Module; ValueError for bins that are even or below 3
    """

    def __init__(self, model, bins=BINS):
        if not isinstance(model, Module):
            raise KindError(f"Histograms: model is {model!r}, want a Module")
        if isinstance(bins, bool) or not isinstance(bins, int) or bins < 3 or bins % 2 == 0:
            raise ShapeError(f"Histograms: bins is {bins!r}, want an odd number of at least 3")
        self.model, self.bins, self.records = model, bins, {}

    def on_epoch(self, history):
        for name, parameter in module_of(self.model).named_parameters():
            pair = parameter.array, None if parameter.grad is None else parameter.grad.array
            values = [None if array is None else host(array).ravel() for array in pair]
            rows = self.records.setdefault(name, [])
            edges = rows[0][1] if rows else self._edges(*map(_largest, values))
            counts = [_counts(array, own) for array, own in zip(values, edges, strict=True)]
            rows.append((history[-1]["epoch"], edges, *counts))

    def _edges(self, weight, gradient):
        """Edges for weights and for gradients of these largest magnitudes."""
        positive = gradient * np.logspace(SMALLEST, LARGEST, (self.bins + 1) // 2)
        return np.linspace(-MARGIN, MARGIN, self.bins + 1) * weight, np.concatenate([-positive[::-1], positive])

    def state_dict(self):
        """The records as JSON values."""
        return {
            name: {
                "edges": [edges.tolist() for edges in rows[0][1]],
                "rows": [[epoch, *(None if row is None else row.tolist() for row in both)] for epoch, _, *both in rows],
            }
            for name, rows in self.records.items()
        }

    def load_state_dict(self, state, epochs=None):
        """Go on from what state_dict() described, or from its first epochs. Errors: ValueError if it is malformed."""
        try:
            records = {name: _rows(part, epochs) for name, part in state.items()}
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            hint = "want what Histograms.state_dict() gives"
            raise ShapeError(f"Histograms: state is malformed, {hint}") from error
        self.records = {name: rows for name, rows in records.items() if rows}


def _rows(part, epochs):
    """The rows of a parameter, those of the first epochs if they are given."""
    edges = tuple(np.asarray(own, np.float64) for own in part["edges"])
    if len(edges) != 2 or {own.ndim for own in edges} != {1}:
        raise TypeError("edges are no two rows")
    rows = []
    for epoch, *both in part["rows"]:
        if epochs is None or epoch <= epochs:
            rows.append((int(epoch), edges, *(_row(*pair) for pair in zip(both, edges, strict=True))))
    return rows


def _row(counts, edges):
    found = None if counts is None else np.asarray(counts, np.int64)
    if found is not None and found.shape != (len(edges) - 1,):
        raise TypeError("counts do not fit the edges")
    return found


def _largest(values):
    """The largest finite magnitude; 1 where there is none above 0."""
    finite = np.zeros(0) if values is None else values[np.isfinite(values)]
    return float(np.abs(finite).max(initial=0.0)) or 1.0


def _counts(values, edges):
    """How many values lie in each bin, those beyond in the outermost."""
    if values is None or not values.size or not np.isfinite(values).all():
        return None
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
