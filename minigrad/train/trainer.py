"""One update of a model.

Images come as batches (images, labels) of Tensors; a model maps images to scores, one for each class. A loss
is called as loss(scores, labels) and gives the mean over the batch.
"""

import contextlib
import functools
import math
import time
import weakref
from collections import deque

from minigrad_kernels.errors import MinigradError, OutOfMemory, ShapeError, StateError

from .. import device, ops
from ..amp import GradScaler
from ..core.check import flag_of, function_of, instance_of, number_of
from ..core.modes import no_grad
from ..core.tape import write
from ..core.tensor import Tensor
from ..graph import CaptureError, capture
from ..optim import Optimizer
from ..optim.clip import clip_scale
from ..optim.lr_scheduler import LRScheduler
from .checks import check_model
from .evaluation import on_device, right
from .finite import NotFinite, check_losses, marked
from .history import History
from .precision import check_precision, computing
from .team import team_of

AHEAD = 64  # updates that the host may be ahead of the figures that it has seen
EVERY = 16  # updates between two copies of the buffers
SMALLEST = 2.0**-14  # scale of a loss: gradients that overflow even then are wrong, not large


class Trainer:
    """update(batch) makes one step of the optimiser.

    schedule    stepped after each update
    clip        the largest 2-norm of the gradient of all parameters together
    precision   "float32", the default, "tf32", "bfloat16" or "float16": in which types the model and the loss compute
                (see precision.py)
    scaler      the GradScaler of the loss, to go on with; default a new one for float16. An update that it leaves out
                does not step the schedule
    eager       on a GPU, do without graphs: else each update is one launch (see minigrad.graph), the loss and what the
                model does must wait for nothing, and figures of losses come when they come
    history     takes the figures of the updates, in history.running; its `steps` counts them. Default a new History
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
        self.model, self.team, self.back = model, team_of(model), None
        self.optimizer = instance_of("fit", "optimizer", optimizer, Optimizer)
        if {*model.parameters()}.isdisjoint(optimizer._parameters()):
            raise ShapeError("fit: optimizer has no parameter of the model, wanted one made with model.parameters()")
        self.loss, self.precision = function_of("fit", "loss", loss), check_precision("fit", precision)
        self.schedule = instance_of("fit", "schedule", schedule, LRScheduler, optional=True)
        if schedule is not None and schedule.optimizer is not optimizer:
            raise ShapeError("fit: schedule belongs to another optimiser")
        self.clip = None if clip is None else number_of("fit", "clip", clip, 1e-30)
        scaler = instance_of("fit", "scaler", scaler, GradScaler, optional=True)
        self.scaler = scaler or GradScaler(enabled=self.precision == "float16")
        history = instance_of("fit", "history", history, History, optional=True)
        self.history = History() if history is None else history
        self.history.close()  # figures of a call that was interrupted come in first
        parameter = next(iter(model.parameters()), None)
        on_gpu = parameter is not None and device.place_of(parameter.array).captures is not None
        # On a GPU, updates are launches of graphs.
        self.graphs = not flag_of("fit", "eager", eager) and on_gpu
        if self.graphs:
            # By a proxy, as a cycle of references would keep the graph, and what it needs, after the training.
            step = functools.partial(Trainer._captured, weakref.proxy(self))
            self._graph, self._place = capture(step, device=parameter.device), device.place(parameter.device)
            self._lost = Tensor(device.zeros((1,), "float64", like=parameter.array))  # 1 once a loss was not finite
            # (step, images before it, those of this rank's batches, what takes all back, what comes), oldest first
            self._coming = deque()
            self._ahead = 0 if self.team.several or self.scaler.is_enabled() else AHEAD
            self.history.settle = self._settle  # which keeps this alive until history.close()

    def update(self, *batches):
        """One update: the one of the large batch that the batches would be together.

        Its figures enter into history.running; on a GPU, where they come later, whoever asks for them waits.
        """
        history, images = self.history, self.team.images(batches)
        step = history.steps + 1
        if self.back is None or step % EVERY == 0:
            self.back = marked(self.model)
        try:
            went_on = (self._replayed if self.graphs else self._computed)(batches, step)
        except OutOfMemory as error:
            most = max(images)
            raise OutOfMemory(f"fit: {error}; a batch had {most} images, try {max(1, most // 2)}") from error
        except CaptureError as error:
            raise StateError(f"fit: {error}; eager=True trains without graphs") from error
        if not went_on:
            history.latest.skipped += 1
            if self.scaler.get_scale() < SMALLEST:
                raise NotFinite(f"fit: at step {step} gradients are not finite at any scale of the loss; use bfloat16")
        elif self.schedule is not None:
            self.schedule.step()
        history.latest.images += sum(images)
        history.steps = step

    # ---- parts of an update ------------------------------------------------------------------------------------------

    def _computed(self, batches, step):
        """Whether the update was made; False if it was left out, as a gradient was not finite for want of range.

        The host looks at the losses before the optimiser steps. On a CPU that costs nothing, and what a graph does
        instead, to judge them where they are, costs a tenth of a step.
        """
        self.optimizer.zero_grad()
        try:
            with computing(self.precision):
                passed = [(loss.item() * count, int(hits.item()), count) for loss, hits, count in self._passes(batches)]
            rows = self.team.gathered(passed)
            check_losses(rows, step, self.history, self.model, batches)
        except MinigradError:
            self.optimizer.zero_grad()
            self.back()
            raise
        self._apply()
        self._enter(rows)
        return not (self.scaler.is_enabled() and self.scaler.skipped())

    def _passes(self, batches):
        """Compute the gradients of an update; gives (loss, right answers, images) of each of this rank's batches."""
        total = sum(self.team.images(batches))
        for part in self.team.parts(batches):
            for place, batch in enumerate(part, 1):
                images, labels = on_device(batch, self.model)
                scores = self.model(images)
                loss = self.loss(scores, labels)
                if not isinstance(loss, Tensor) or loss.numel() != 1:
                    raise ShapeError(f"fit: loss gave {loss!r:.200}, wanted a Tensor of one number")
                correct = right(scores, labels)
                share = len(labels) * self.team.shards / total  # the mean over all images weighs each batch by its own
                with self.team.holding() if place < len(part) else contextlib.nullcontext():
                    self.scaler.scale(loss if share == 1 else loss * share).backward()
                yield loss, correct, len(labels)

    def _apply(self, lost=None):
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

    def _enter(self, rows):
        """Add rows (sum of losses, right answers, images) of an update to the figures of the epoch."""
        self.history.latest.loss += math.fsum(loss for loss, _, _ in rows)
        self.history.latest.correct += int(sum(hits for _, hits, _ in rows))

    # ---- updates by graphs -------------------------------------------------------------------------------------------
    #
    # The GPU is told to do an update; its figures enter into history.running as they come. An update whose loss is not
    # finite changes no weights, and neither do those after it, which the GPU was told to do before the host knew. Where
    # ranks compare their figures, or a scale of the loss decides whether a schedule goes on, the host waits for each.

    def _captured(self, batches):
        """What the graph does; gives rows (loss, right answers) and, last, (whether it was left out, 0)."""
        self.optimizer.zero_grad()
        with computing(self.precision):
            found = list(self._passes(batches))
        with no_grad():
            losses = ops.stack([loss.detach().double() for loss, _, _ in found])
            correct = ops.stack([right.double() for _, right, _ in found])
            bad = ops.logical_not(ops.isfinite(losses).all()).double().reshape(1)
            bad = ops.maximum(self._lost, self.team.any(bad))
            device.assign(write(self._lost), bad.array)
            left_out = self._apply(self._lost.detach())
            rows = ops.stack([losses, correct], 1)
            last = ops.stack([left_out.double().reshape((1,)), 0 * self._lost.detach()], 1)
            return ops.cat([rows, last]), tuple([count for _, _, count in found])

    def _replayed(self, batches, step):
        """Whether the update before was made, as far as is known."""
        running = self.history.latest
        rows, counts = self._graph([on_device(batch, self.model) for batch in batches])
        backs = [self.back] if self.schedule is None else [self.back, self.schedule.mark()]
        self._coming.append((step, running.images, counts, backs, self._place.fetched(rows.array)))
        running.pending += sum(self.team.images(batches))
        went_on = True
        while self._coming and (len(self._coming) > self._ahead or self._coming[0][-1].done):
            went_on = self._arrive()
        return went_on

    def _settle(self):
        """Wait for all figures."""
        before = time.perf_counter()
        while self._coming:
            self._arrive()
        if self.history.latest.timed_images:
            self.history.latest.seconds += time.perf_counter() - before

    def _arrive(self):
        """Take over the figures of the oldest update; whether it was made."""
        step, images, counts, backs, coming = self._coming.popleft()
        *rows, (left_out, _) = coming.value().tolist()
        rows = [(loss * count, right, count) for (loss, right), count in zip(rows, counts, strict=True)]
        rows = self.team.gathered(rows)
        try:
            check_losses(rows, step, self.history, self.model)
        except StateError:
            self._go_back(step, images, backs)
            raise
        self._enter(rows)
        self.history.latest.pending -= sum(count for _, _, count in rows)
        return not left_out

    def _go_back(self, step, images, backs):
        """Leave everything as it was before this update, which the GPU has not made."""
        running = self.history.latest
        running.images, running.pending, running.trained = images, 0, False
        self.history.steps, self.back = step - 1, None
        self._coming.clear()
        for back in backs:
            back()
        device.fill(write(self._lost), 0)
        self.optimizer.zero_grad()
        self.optimizer.settle()
