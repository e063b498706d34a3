"""How weights and gradients are distributed, epoch by epoch."""

import numpy as np

from minigrad_kernels.errors import ShapeError

from ..core.check import at_least
from ..device import host
from ..nn import Module
from .callbacks import Callback
from .checks import check_kind
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
        self.model, self.bins = check_kind("Histograms", "model", model, Module), bins
        if at_least("Histograms", "bins", bins, 3) % 2 == 0:
            raise ShapeError(f"Histograms: bins is {bins}, wanted an odd number")
        self.records = {}

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
        return {name: [_plain(row) for row in rows] for name, rows in self.records.items()}

    def load_state_dict(self, state, epochs=None):
        """Go on from what state_dict() described, or from its first epochs. Errors: ValueError if it is malformed."""
        try:
            records = {
                name: [_row(*row) for row in rows if epochs is None or row[0] <= epochs] for name, rows in state.items()
            }
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
            raise ShapeError("Histograms: state is malformed, wanted what Histograms.state_dict() gives") from error
        self.records = {name: rows for name, rows in records.items() if rows}


def _plain(value):
    """Arrays in a row as lists."""
    return list(map(_plain, value)) if isinstance(value, tuple) else getattr(value, "tolist", lambda: value)()


def _row(epoch, edges, *both):
    """A row of records from what _plain made of it."""
    edges = np.asarray(edges, np.float64)
    counts = [None if own is None else np.asarray(own, np.int64) for own in both]
    if len(counts) != 2 or any(np.shape(edges) != (2, len(own) + 1) for own in counts if own is not None):
        raise ValueError("counts do not fit the edges")
    return epoch, tuple(edges), *counts


def _largest(values):
    """The largest finite magnitude; 1 where there is none above 0."""
    finite = np.zeros(0) if values is None else values[np.isfinite(values)]
    return float(np.abs(finite).max(initial=0.0)) or 1.0


def _counts(values, edges):
    """How many values lie in each bin, those beyond in the outermost."""
    if values is None or not values.size or not np.isfinite(values).all():
        return None
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
