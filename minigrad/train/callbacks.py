"""What hangs on the training loop: callbacks, among them progress on a terminal and histograms."""

import os
import signal
import sys
import threading
from contextlib import suppress

import numpy as np

from ..core.check import instance_of
from ..device import host
from ..nn import Module
from .team import module_of

SIGNALS = (signal.SIGINT, signal.SIGTERM)
BINS = 65  # odd, so that exact zeros lie in the middle of a bin


class Callback:
    """Called by fit at the points that the methods name; each gets the History. Override what is needed."""

    def on_start(self, history):
        """Before the first update."""

    def on_step(self, history):
        """After each update; history.running holds the sums of the epoch so far."""

    def on_epoch(self, history):
        """After each epoch; history[-1] is its row."""

    def on_end(self, history):
        """When the training ends, also where an exception ends it."""

    def stop(self, history):
        """Whether to end now. Asked after each update and epoch."""
        return False


class Interruption(Callback):
    """Ctrl-C, and the request to end that systems send, as a wish that is granted between two updates.

    While this is entered as a context, the first signal makes fit return after the update under way. A second one
    raises KeyboardInterrupt. On several ranks all leave after the same update, whichever got the signal.

    requested   the number of the signal, 0 before there was one
    """

    def __init__(self):
        self.requested, self.before = 0, {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            self.before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *exception):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if self.requested:
            raise KeyboardInterrupt
        self.requested = number
        # Not print: the signal may come while a print is at work. And nobody may be there to read it.
        with suppress(OSError):
            os.write(2, b"\nstopping after this step; once more to quit at once\n")

    def stop(self, history):
        return self.requested != 0


class Progress(Callback):
    """A bar for each epoch on a terminal or in a notebook, and a line for each on stdout.

    images      in an epoch
    """

    def __init__(self, images, epochs):
        self.images, self.epochs, self.bar = images, epochs, None

    def on_step(self, history):
        if self.bar is None:
            from tqdm.auto import tqdm

            name, off = f"epoch {len(history) + 1}/{self.epochs}", True if sys.stderr is None else None
            self.bar = tqdm(total=self.images, desc=name, unit=" images", leave=False, disable=off)
        running = history.latest
        known = max(1, running.images - running.pending)
        self.bar.set_postfix(loss=f"{running.loss / known:.4f}", refresh=False)
        self.bar.update(running.images - self.bar.n)

    def on_epoch(self, history):
        self.on_end(history)
        row, epochs = history[-1], self.epochs
        text = f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}  loss {row['loss']:.4f}"
        text += f"  train {100 * row['accuracy']:.2f} %"
        text += f"  test {100 * row['test_accuracy']:.2f} %" if "test_accuracy" in row else ""
        speed = row["images_per_second"]
        print(text if speed is None else f"{text}  {speed:.0f} images/s", flush=True)

    def on_end(self, history):
        if self.bar is not None:
            self.bar.close()
        self.bar = None


class Histograms(Callback):
    """A callback that counts the weights and the latest gradients of each parameter after each epoch.

    records     {name: [(epoch, edges, counts of weights, counts of gradients), ...]} as lists; records[name] is what
                draw.histograms draws. edges is the pair [edges for weights, edges for gradients]

    Bins lie symmetrically about 0. Those of weights have equal widths and reach to twice the largest magnitude after
    the first epoch recorded; those of gradients, which grow and vanish by orders of magnitude, have equal widths on a
    logarithmic scale, from 1e-5 to 10 times the largest magnitude, with one around 0 for what is smaller. They then
    stay, so that epochs can be compared; what lies beyond is counted in the outermost ones. Gradients are those of the
    last update, before clipping. Counts are None where there is nothing to count: no gradient (with ZeRO none is kept
    whole), or elements that are not finite.

    model       what is trained; of a DataParallel the names are those of its module

    Shapes  edges (66,) each, counts (65,)
    Errors  TypeError if model is no Module
    """

    def __init__(self, model):
        self.model, self.records = instance_of("Histograms", "model", model, Module), {}

    def on_epoch(self, history):
        for name, parameter in module_of(self.model).named_parameters():
            pair = parameter.array, None if parameter.grad is None else parameter.grad.array
            values = [None if array is None else host(array).ravel() for array in pair]
            rows = self.records.setdefault(name, [])
            edges = rows[0][1] if rows else _edges(*map(_largest, values))
            rows.append([history[-1]["epoch"], edges, *map(_counts, values, edges)])

    def state_dict(self):
        """The records, which are JSON values."""
        return {name: list(rows) for name, rows in self.records.items()}

    def load_state_dict(self, state):
        """Go on from what state_dict() gave."""
        self.records = {name: list(rows) for name, rows in state.items()}


def _edges(weight, gradient):
    """Edges for weights and for gradients of these largest magnitudes."""
    positive = gradient * np.logspace(-5, 1, (BINS + 1) // 2)
    weights = np.linspace(-2 * weight, 2 * weight, BINS + 1)
    return [weights.tolist(), [*(-positive[::-1]).tolist(), *positive.tolist()]]


def _largest(values):
    """The largest finite magnitude; 1 where there is none above 0."""
    finite = np.zeros(0) if values is None else values[np.isfinite(values)]
    return float(np.abs(finite).max(initial=0.0)) or 1.0


def _counts(values, edges):
    """How many values lie in each bin, those beyond in the outermost."""
    if values is None or not values.size or not np.isfinite(values).all():
        return None
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0].tolist()
