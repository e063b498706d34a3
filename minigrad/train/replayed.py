"""Updates on a GPU: each is one launch of a graph, and its figures come to the host while others go on."""

import functools
import time
import weakref
from collections import deque

from minigrad_kernels.errors import StateError

from .. import device, ops
from ..core.modes import no_grad
from ..core.tape import write
from ..core.tensor import Tensor
from ..data.shards import Shards
from ..graph import capture
from .evaluation import made, on_device
from .finite import check_losses

__all__ = ["Replayed"]

AHEAD = 64  # updates that the host may be ahead of the figures that it has seen


class Replayed:
    """Called with the batches of an update, it tells the GPU to do it; figures enter into history.running as they come.

    An update whose loss is not finite changes no weights, and neither do those after it, which the GPU was told to do
    before the host knew. Where ranks compare their figures, or a scale of the loss decides whether a schedule goes on,
    the host waits for each update.
    """

    def __init__(self, trainer):
        # By proxies, as a cycle of references would keep the graphs, and what they need, after the training.
        self.trainer, self.history = weakref.proxy(trainer), trainer.history
        parameter = next(trainer.model.parameters())
        self.place = device.place(parameter.device)
        self.lost = Tensor(device.zeros((1,), "float64", like=parameter.array))  # 1 once a loss was not finite
        # (step, images, those of this rank's batches, what takes the schedule back, what comes), the oldest first
        self.coming: deque = deque()
        self.ahead = 0 if trainer.team.several or trainer.scaler.is_enabled() else AHEAD
        self.step = capture(functools.partial(Replayed._step, weakref.proxy(self)), device=parameter.device)

    # ---- on the GPU --------------------------------------------------------------------------------------------------

    def _step(self, batches, totals):
        """What the graph does; gives rows (loss, right answers) and, last, (whether it was left out, 0)."""
        trainer = self.trainer
        trainer.optimizer.zero_grad()
        batches = [
            made(batch) if total is None else Shards(batch, total) for batch, total in zip(batches, totals, strict=True)
        ]
        with trainer.computing():
            found = list(trainer.passes(batches))
        with no_grad():
            losses = ops.stack([loss.detach().double() for loss, _, _ in found])
            correct = ops.stack([right.double() for _, right, _ in found])
            bad = ops.logical_not(ops.isfinite(losses).all()).double().reshape(1)
            bad = ops.maximum(self.lost, trainer.team.any(bad))
            device.assign(write(self.lost), bad.array)
            left_out = trainer.apply(self.lost.detach())
            rows = ops.stack([losses, correct], 1)
            last = ops.stack([left_out.double().reshape((1,)), 0 * self.lost.detach()], 1)
            return ops.cat([rows, last]), tuple([count for _, _, count in found])

    # ---- on the host -------------------------------------------------------------------------------------------------

    def __call__(self, batches, number):
        """Whether the update before was made, as far as is known."""
        trainer, images = self.trainer, sum(self.trainer.team.images(batches))
        trainer.marks.note(number, self.coming[0][0] if self.coming else number)
        rows, counts = self.step(*self._plain(batches))
        back = None if trainer.schedule is None else trainer.schedule.mark()
        self.coming.append((number, images, counts, back, self.place.fetched(rows.array)))
        self.history.latest.pending += images
        went_on = True
        while self.coming and (len(self.coming) > self.ahead or self.coming[0][-1].done):
            went_on = self._arrive()
        return went_on

    def settle(self):
        """Wait for all figures."""
        before = time.perf_counter()
        while self.coming:
            self._arrive()
        running = self.history.latest
        if running.timed_images:
            running.seconds += time.perf_counter() - before

    def _plain(self, batches):
        """(batches as tuples of Tensors on the GPU, images of all ranks in each where it is cut, else None)."""
        plain, totals = [], []
        for batch in batches:
            cut = isinstance(batch, Shards)
            pairs = [part and on_device(part, self.trainer.model) for part in (batch if cut else [batch])]
            plain.append(tuple(pairs) if cut else pairs[0])
            totals.append(batch.total if cut else None)
        return tuple(plain), tuple(totals)

    def _arrive(self):
        """Take over the figures of the oldest update; whether it was made."""
        number, images, counts, back, coming = self.coming.popleft()
        *rows, (left_out, _) = coming.value().tolist()
        rows = [(loss * count, right, count) for (loss, right), count in zip(rows, counts, strict=True)]
        rows = self.trainer.team.gathered(rows)
        try:
            check_losses(rows, number, self.history, self.trainer.model)
        except StateError:
            self._go_back(number, images, back)
            raise
        self.trainer.enter(rows)
        self.history.latest.pending -= images
        return not left_out

    def _go_back(self, number, images, back):
        """Leave everything as it was before the update of that number, which the GPU has not made."""
        running, counted = self.history.latest, self.history.steps  # the update under way is not counted yet
        left_out = [(number, images), *[entry[:2] for entry in self.coming]]
        running.images -= sum(count for step, count in left_out if step <= counted)
        running.pending, running.trained = 0, False
        self.coming.clear()
        self.trainer.marks.restore(number)
        if back is not None:
            back()
        self.history.steps = number - 1
        device.fill(write(self.lost), 0)
        self.trainer.optimizer.zero_grad()
        self.trainer.optimizer.settle()
