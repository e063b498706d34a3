"""One update of a model, and its measure on one batch.

Images come as batches (images, labels) of Tensors; a model maps images to scores, one for each class. A loss
is called as loss(scores, labels) and gives the mean over the batch.
"""

import contextlib
import functools
import math

from minigrad_kernels.errors import KindError, MinigradError, ShapeError

from .. import device, ops
from ..amp import GradScaler
from ..core.check import flag_of, function_of, number_of
from ..core.tensor import Tensor
from ..graph import capture
from ..optim import Optimizer
from ..optim.clip import clip_scale
from ..optim.lr_scheduler import LRScheduler
from .checks import check_kind, check_model, explained
from .evaluation import evaluation, figures, on_device, right
from .finite import Marks, NotFinite, check_losses
from .history import History
from .precision import check_precision, computing
from .replayed import Replayed
from .team import team_of

__all__ = ["Trainer"]

SMALLEST = 2.0**-14  # scale of a loss: gradients that overflow even then are wrong, not large


class Trainer:
    """update(batch) makes one step of the optimiser, measure(batch) looks at a batch. Arguments as those of fit.

    history     takes the figures of the updates, in history.running; its `steps` counts them
    graphs      whether each update and measure is one launch of a graph
    Errors      as those of fit
    """

    def __init__(
        self,
        model,
        optimizer,
        loss=ops.cross_entropy,
        *,
        schedule=None,
        clip=None,
        precision=None,
        scaler=None,
        eager=False,
        history=None,
    ):
        check_model("fit", model)
        self.model, self.team, self.marks = model, team_of(model), Marks(model)
        self.optimizer = check_kind("fit", "optimizer", optimizer, Optimizer)
        self.loss, self.precision = function_of("fit", "loss", loss), check_precision("fit", precision)
        self.schedule = check_kind("fit", "schedule", schedule, LRScheduler, optional=True)
        if schedule is not None and schedule.optimizer is not optimizer:
            raise ShapeError("fit: schedule belongs to another optimiser")
        if clip is not None and not number_of("fit", "clip", clip) > 0:
            raise ShapeError(f"fit: clip is {clip}, wanted a number above 0 or None")
        scaler = check_kind("fit", "scaler", scaler, GradScaler, optional=True)
        self.clip, self.scaler = clip, scaler or GradScaler(enabled=self.precision == "float16")
        history = check_kind("fit", "history", history, History, optional=True)
        self.history = History() if history is None else history
        self.history.close()  # figures of a call that was interrupted come in first
        self.history.precision, parameter = self.precision, next(iter(model.parameters()), None)
        on_gpu = parameter is not None and device.place_of(parameter.array).captures is not None
        self.graphs = not flag_of("fit", "eager", eager) and on_gpu
        self._figures = functools.partial(figures, model, self.loss)
        self._made = self._made_now
        if self.graphs:
            self._figures = capture(self._figures, device=parameter.device)
            self._made = Replayed(self)
            self.history.settle = lambda: self._made.settle()  # which keeps this alive until history.close()

    def update(self, *batches):
        """One update: the one of the large batch that the batches would be together.

        Its figures enter into history.running; on a GPU, where they come later, whoever asks for them waits.
        """
        history, images = self.history, self.team.images(batches)
        number = history.steps + 1
        with explained("fit", max(images)):
            made = self._made(batches, number)
        if not made:
            history.latest.skipped += 1
            if self.scaler.get_scale() < SMALLEST:
                raise NotFinite(
                    f"fit: at step {number} gradients are not finite at any scale of the loss; use bfloat16"
                )
        elif self.schedule is not None:
            self.schedule.step()
        history.latest.images += sum(images)
        history.steps = number

    def measure(self, batch):
        """(mean loss, right answers) of a batch in evaluation mode, a Tensor (2,) where the model is.

        From a graph, it is valid until the next call.
        """
        with evaluation(self.model), self.computing():
            return self._figures(on_device(batch, self.model))

    def computing(self):
        """A context in which the model computes in the precision of this training."""
        return computing(self.precision)

    # ---- parts of an update ------------------------------------------------------------------------------------------

    def _made_now(self, batches, number):
        """Whether the update was made; False if it was left out, as a gradient was not finite for want of range."""
        self.optimizer.zero_grad()
        self.marks.note(number, number)
        try:
            with self.computing():
                passed = [(loss.item() * count, int(hits.item()), count) for loss, hits, count in self.passes(batches)]
            rows = self.team.gathered(passed)
            check_losses(rows, number, self.history, self.model, batches)
        except MinigradError:
            self.optimizer.zero_grad()
            self.marks.restore(number)
            raise
        self.apply()
        self.enter(rows)
        return not (self.scaler.is_enabled() and self.scaler.skipped())

    def passes(self, batches):
        """Compute the gradients of an update; gives (loss, right answers, images) of each of this rank's batches."""
        total = sum(self.team.images(batches))
        for part in self.team.parts(batches):
            for number, batch in enumerate(part, 1):
                images, labels = on_device(batch, self.model)
                scores = self.model(images)
                loss = self.loss(scores, labels)
                if not isinstance(loss, Tensor):
                    raise KindError(f"fit: loss gave a {type(loss).__name__}, wanted a Tensor")
                if loss.numel() != 1:
                    raise ShapeError(f"fit: loss gave shape {loss.shape}, wanted one number, the mean over the batch")
                correct = right(scores, labels)
                share = len(labels) * self.team.shards / total  # the mean over all images weighs each batch by its own
                with self.team.holding() if number < len(part) else contextlib.nullcontext():
                    self.scaler.scale(loss if share == 1 else loss * share).backward()
                yield loss, correct, len(labels)

    def apply(self, lost=None):
        """Clip and update where the parameters are, without waiting; gives what says there whether it was left out.

        lost    a flag (1,) there: where it is not 0, nothing is changed
        """
        parameters = None if self.clip is None else self.model.parameters()
        if self.scaler.is_enabled():
            self.scaler.clipped_step(self.optimizer, parameters, self.clip, lost)
            self.scaler.update()
            return self.scaler.found()
        options = {} if self.clip is None else {"scale": clip_scale(parameters, self.clip)[1]}
        self.optimizer.step(**options, **({} if lost is None else {"found_inf": lost}))
        return lost

    def enter(self, rows):
        """Add rows (sum of losses, right answers, images) of an update to the figures of the epoch."""
        losses, hits, _ = zip(*rows, strict=True)
        self.history.latest.loss += math.fsum(losses)
        self.history.latest.correct += int(sum(hits))
