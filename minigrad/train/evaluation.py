"""Loss and accuracy without a tape; no batch waits for the figures of the one before."""

import contextlib
import math

from minigrad_kernels.errors import ShapeError

from .. import device, ops
from ..core.modes import no_grad
from ..graph import capture
from .checks import check_model, checked, naming_batch
from .passes import made, on_device, right
from .precision import computing
from .team import team_of

__all__ = ["counted", "evaluate", "evaluated", "evaluation", "measuring"]


def evaluate(model, loader, loss=ops.cross_entropy, stop=lambda: False, *, precision=None):
    """(mean loss, accuracy) over all batches, in evaluation mode; None if stop(), asked after each, says so.

    Of a DataParallel model all ranks call this: they share the batches, and all get the figures of the whole.
    The training flags of all modules are as before afterwards.
    precision   in which types the model and the loss compute, as that of fit
    Errors  ValueError if there are no batches, TypeError for a Dataset instead of them
    """
    check_model("evaluate", model, loader=loader)
    return evaluated("evaluate", model, loader, measuring(model, loss), stop, precision)


def measuring(model, loss, graphs=False):
    """A function of a batch that gives its (mean loss, right answers) as a Tensor where the model is.

    graphs      on a GPU, one that is launched as a graph from the third batch of a size on
    """

    def figures(batch):
        images, labels = made(batch)
        scores = model(images)
        return ops.stack([loss(scores, labels).double().reshape(()), right(scores, labels).double()])

    return capture(figures, device=next(model.parameters()).device) if graphs else figures


def evaluated(op, model, loader, measure, stop, precision):
    """What `evaluate` gives, by the function that `measuring` made of the model and the loss."""
    team, coming = team_of(model), []
    replays = hasattr(measure, "graphs") and not team.several
    with evaluation(model), computing(precision, "evaluate"):
        for batches in team.rounds(checked(op, counted(loader, replays))):
            for batch in on_device(batches, model):
                with naming_batch(op, len(batch[1])):
                    found = measure(batch).array
                coming.append((len(batch[1]), device.place_of(found).fetched(found)))
            if stop():
                return None
        arrived = [(count, *found.value().tolist()) for count, found in coming]
    rows = team.gathered([(loss * count, hits, count) for count, loss, hits in arrived])
    images = int(sum(count for _, _, count in rows))
    if not images:
        raise ShapeError(f"{op}: loader has no images")
    return math.fsum(loss for loss, _, _ in rows) / images, int(sum(hits for _, hits, _ in rows)) / images


def counted(loader, replays):
    """The batches of an epoch; for graphs such as the GPU makes by itself, where the loader has them."""
    own = getattr(loader, "counted", None) if replays else None
    found = None if own is None else own()
    return loader if found is None else found


@contextlib.contextmanager
def evaluation(model):
    """Inside, all modules are in evaluation mode and there is no tape; afterwards their flags are as before."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, training in flags:
            module.training = training
