"""The training loop on a terminal, or in a log."""

import contextlib
import sys

from minigrad_kernels.toolchain import progress
from minigrad_kernels.toolchain.cache import cache_folder

from ..core.check import at_least
from .callbacks import Callback

__all__ = ["Progress"]


class Progress(Callback):
    """A bar for each epoch on a terminal or in a notebook, and a line for each on stdout.

    The first update is announced apart: kernels are compiled in it, or loaded from the cache.
    images      in an epoch
    """

    def __init__(self, images, epochs):
        self.images = at_least("Progress", "images", images, 1)
        self.epochs = at_least("Progress", "epochs", epochs, 1)
        self.bar = None
        self.quiet = contextlib.ExitStack()  # no other line about kernels while ours is on the terminal
        self.first = None  # the compiled kernels in the cache before the first update

    def on_start(self, history):
        if len(history) >= self.epochs or history.running.trained:
            return
        self.first = _cached_kernels()
        self.quiet.enter_context(progress.listen(lambda name, seconds: None))
        print(f"{'loading' if self.first else 'compiling'} kernels ... ", end="", flush=True)

    def on_step(self, history):
        if self.first is not None:
            compiled = len(_cached_kernels() - self.first)
            self.quiet.close()
            note = f" ({compiled} compiled)" if self.first and compiled else ""
            print(f"{history.first_step_seconds:.1f} s{note}", flush=True)
            self.first = None
        if self.bar is None:
            from tqdm.auto import tqdm

            name, off = f"epoch {len(history) + 1}/{self.epochs}", True if sys.stderr is None else None
            self.bar = tqdm(total=self.images, desc=name, unit=" images", leave=False, disable=off)
        running = history.latest
        if known := running.images - running.pending:
            self.bar.set_postfix(loss=f"{running.loss / known:.4f}", refresh=False)
        self.bar.update(running.images - self.bar.n)

    def on_epoch(self, history):
        self.close()
        print(_line(history[-1], self.epochs), flush=True)

    def close(self):
        """Take an unfinished bar or line off the terminal."""
        self.quiet.close()
        if self.first is not None:
            print(flush=True)
        if self.bar is not None:
            self.bar.close()
        self.bar = self.first = None


def _line(row, epochs):
    parts = [f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}", f"loss {row['loss']:.4f}"]
    parts.append(f"train {100 * row['accuracy']:.2f} %")
    if "test_accuracy" in row:
        parts.append(f"test {100 * row['test_accuracy']:.2f} %")
    if row["images_per_second"] is not None:
        parts.append(f"{row['images_per_second']:.0f} images/s")
    return "  ".join(parts)


def _cached_kernels():
    folder = cache_folder()
    return {file.name for file in folder.iterdir()} if folder else set()
