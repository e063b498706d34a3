"""Losses that are not finite: what fit says, and that all is as before the update, also where a GPU was ahead."""

import numpy as np
import pytest

import minigrad
from minigrad import data, nn, optim
from minigrad.core.errors import StateError
from minigrad.optim import lr_scheduler
from minigrad.parallel import DataParallel
from minigrad.train import Callback, fit, predict
from minigrad.train.history import History
from tests.device.stand_in_gpus import gpus
from tests.parallel.parallel_runs import on_ranks

from .small_training import images
from .small_training import network as small_network

pytestmark = pytest.mark.deep

RNG = np.random.default_rng(0)
UPDATES, BAD = 6, 8  # of an epoch of twice as many: the second lies two marks after the first update


@pytest.fixture(autouse=True)
def many_marks(monkeypatch):
    monkeypatch.setattr("minigrad.train.trainer.EVERY", 3)


def network():
    minigrad.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def batches(bad=None):
    """Twice UPDATES batches of 3; the images of number `bad`, counted from 1, are not finite."""
    images = RNG.standard_normal((2 * UPDATES, 3, 1, 4, 4)).astype(np.float32)
    if bad is not None:
        images[bad - 1, 1] = np.nan
    labels = RNG.integers(0, 3, (2 * UPDATES, 3))
    return [(minigrad.tensor(x), minigrad.tensor(y)) for x, y in zip(images, labels, strict=True)]


SCHEDULES = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 3, 0.9),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 2 * UPDATES),
    "sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5), lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)],
        [5],
    ),
    "none": lambda optimizer: None,
}


class Keep(Callback):
    """The weights and the rate after each update."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.kept = model, optimizer, []

    def on_step(self, history):
        weights = [parameter.detach().numpy().tobytes() for parameter in self.model.parameters()]
        self.kept.append((weights, self.optimizer.param_groups[0]["lr"]))


def stopped(model, found, make_schedule, **options):
    """(message, History, Keep, optimiser, schedule) of a training that a loss ends."""
    optimizer, history = optim.Adam(model.parameters(), lr=0.01), History()
    schedule, keep = make_schedule(optimizer), Keep(model, optimizer)
    with pytest.raises(StateError) as caught:
        fit(model, found, optimizer, 1, schedule=schedule, history=history, callbacks=[keep], **options)
    return str(caught.value), history, keep, optimizer, schedule


def check_before(model, history, keep, optimizer, schedule, make_schedule):
    """All is as after update BAD - 1."""
    weights = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    assert (weights, optimizer.param_groups[0]["lr"]) == keep.kept[BAD - 2]
    assert history.steps == BAD - 1 and history.running.images == 3 * (BAD - 1)
    assert optimizer.state_dict()["state"][0]["step"] == BAD - 1
    if schedule is not None:
        other = make_schedule(optim.Adam(network().parameters(), lr=0.01))
        for _ in range(BAD - 1):
            other.step()
        assert schedule.state_dict() == other.state_dict()
    assert all(np.isfinite(buffer.numpy()).all() for buffer in model.buffers())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_images_that_are_not_finite_are_named_and_leave_no_trace():
    model, make = network(), SCHEDULES["step"]
    message, *found = stopped(model, batches(BAD), make)
    assert message == (
        f"fit: the loss is nan at step {BAD}; images[1] has NaN or infinity: mend the data or the transform (epoch 1)"
    )
    check_before(model, *found, make)


@pytest.mark.parametrize("name, late", [("none", False), ("one cycle", True), ("sequence", True)])
def test_a_gpu_that_was_ahead_leaves_no_trace(name, late, monkeypatch):
    """late: no figure is seen before the epoch ends; the GPU was told to do all updates then."""
    with gpus(1):
        monkeypatch.setattr("minigrad.device.cuda.Fetched.done", property(lambda self: not late))
        model, make = network().to("cuda"), SCHEDULES[name]
        message, history, keep, *rest = stopped(model, batches(BAD), make)
        assert message.startswith(f"fit: the loss is nan at step {BAD}; lower the learning rate or clip the gradient")
        assert len(keep.kept) == (2 * UPDATES if late else BAD - 1)
        check_before(model, history, keep, *rest, make)


def test_a_training_goes_on_after_a_gpu_was_ahead(monkeypatch):
    """With the bad batch left out, the rest is as if it had never been there."""
    with gpus(1):
        monkeypatch.setattr("minigrad.device.cuda.Fetched.done", property(lambda self: False))
        good = batches()
        bad = (minigrad.full((3, 1, 4, 4), float("nan")), good[0][1])
        results = []
        for found in ([*good[:BAD], bad, *good[BAD:]], good):
            minigrad.manual_seed(1)
            model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).to("cuda")
            optimizer, history = optim.Adam(model.parameters(), lr=0.01), History()
            schedule = lr_scheduler.ExponentialLR(optimizer, 0.99)
            if found is not good:
                with pytest.raises(StateError, match=f"step {BAD + 1};"):
                    fit(model, found, optimizer, 1, schedule=schedule, history=history)
            fit(model, good[history.steps :], optimizer, 1, schedule=schedule, history=history)
            weights = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
            results.append((weights, history.steps, history["loss"], schedule.state_dict()))
        assert results[0] == results[1]


def test_weights_that_were_lost_before_are_named():
    model = network()
    model[3].weight.array[0, 0] = np.nan
    with pytest.raises(StateError, match=r"lower the learning rate .* \(epoch 1; 3.weight is not finite\)"):
        fit(model, batches(), optim.SGD(model.parameters(), 0.1), 1)
    with pytest.raises(StateError, match=r"the test loss is nan after step 1; lower .* \(epoch 1; 3.weight is not fin"):
        loss = lambda scores, labels: scores.sum() if not model.training else model[0].weight.sum()
        fit(model, batches()[:1], optim.SGD(model.parameters(), 0.1), 1, test=batches()[:1], loss=loss)


def test_fewer_images_than_ranks_train_and_evaluate_as_on_one_rank():
    """Batches of one and, last, of two images for four shards: some ranks have nothing to do, and nobody waits."""

    def run(world, batch_size):
        model = DataParallel(small_network(), world, shards=4)
        loader = data.Loader(images(5), batch_size, True, prefetch=0, sampler=model.sampler)
        test = data.Loader(images(3), 1, prefetch=0)
        history = fit(model, loader, optim.SGD(model.parameters(), 0.1), 1, test=test)
        row = {name: value for name, value in history[0].items() if name != "images_per_second"}
        return row, [parameter.numpy().tobytes() for parameter in model.state_dict().values()]

    for batch_size in (1, 3):
        (wanted,) = on_ranks(run, 1, batch_size)
        assert np.isfinite(wanted[0]["loss"]) and wanted[0]["step"] == -(-5 // batch_size)
        for size in (2, 4):
            assert on_ranks(run, size, batch_size) == [wanted] * size


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_memory_that_does_not_suffice_is_told_with_the_batch(op=predict):
    with gpus(1, capacity=1 << 18):
        model = nn.Sequential(nn.Conv2d(1, 64, 3), nn.Flatten(), nn.Linear(256, 3)).to("cuda")
        images, labels = minigrad.zeros(256, 1, 4, 4), minigrad.zeros(256, dtype="int64")
        with pytest.raises(MemoryError, match=rf"{op.__name__}: .*wanted [\d,]+ bytes.* 256 images, try 128"):
            op(model, [(images, labels)])
