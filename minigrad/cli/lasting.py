"""What a training does where what it writes has no room: it says so, goes on, and tries again."""

import contextlib
import sys

import numpy as np
from tqdm import tqdm

from .. import checkpoint, device
from ..core.errors import MinigradError
from ..train.finite import NotFinite
from ..train.team import module_of

__all__ = ["Keeper", "note"]


def note(text):
    """A line on stderr, where a bar of progress may stand."""
    tqdm.write(f"minigrad train: {text}", file=sys.stderr)


class Keeper:
    """Keeps the checkpoints of a run, by all its ranks, and says which is safe.

    A checkpoint that cannot be written does not end the training: the older one stays, and the next attempt comes with
    the next checkpoint. One whose weights are not finite is not written: the older one is worth more.
    step        of the newest checkpoint
    """

    def __init__(self, run, parts, world, history):
        self.run, self.parts, self.world, self.step = run, parts, world, history.steps
        self.failed = False  # whether the newest state could not be saved

    def save(self, name, history):
        """Write a checkpoint, or say that it could not be. Errors: NotFinite for weights or losses that are not"""
        try:
            self._save(name, history)
        except checkpoint.CheckpointError as error:
            self.failed = self.failed or name == "last"
            note(f"step {history.steps} is not saved: {error}; {self.safe}; the training goes on and tries again")

    def _save(self, name, history):
        history.running  # noqa: B018  waits for losses that are on their way, and refuses those that are not finite
        for part, tensor in module_of(self.parts.model).state_dict().items():
            if not np.isfinite(device.host(tensor.array)).all():
                raise NotFinite(f"{part} is not finite after step {history.steps}, so that is not saved")
        self.run.save(name, self.parts, history, self.world)
        if name == "last":
            self.step, self.failed = history.steps, False

    def finish(self, history, ranks):
        """Save what is not saved yet. Errors: CheckpointError, which says what is safe, if that cannot be"""
        if history.running.images or ranks.greatest(self.failed):
            try:
                self._save("last", history)
            except checkpoint.CheckpointError as error:
                hint = f"make room, then go on from there with: minigrad train --resume {self.run.argument}"
                raise type(error)(f"step {history.steps} is not saved: {error}; {self.safe}; {hint}") from error

    @property
    def safe(self):
        return f"{self.run.folder / 'last'} holds step {self.step}"

    @contextlib.contextmanager
    def hints(self, settings):
        """Inside, a loss that is not finite is told with what is safe and how to go on."""
        try:
            yield
        except NotFinite as error:
            how = f"a lower --lr (it was {settings.lr:g})" + ("" if settings.clip else " or with --clip 1")
            rest = "which minigrad evaluate, predict and report take"
            raise NotFinite(f"{error}; {self.safe}, {rest}; begin anew with {how} and another --out") from error

    @staticmethod
    @contextlib.contextmanager
    def writing(what):
        """Inside, a file that can be made again is written: where it cannot be, a line says so."""
        try:
            yield
        except (OSError, MinigradError) as error:
            note(f"{what} could not be written: {error}")
