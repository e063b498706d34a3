"""Losses that are not finite: what fit says, and that all is as before the update, also where a GPU was ahead."""

import numpy as np
import pytest

import minigrad
from minigrad import data, nn, optim
from minigrad.core.errors import StateError
from minigrad.optim import lr_scheduler
from minigrad.parallel import DataParallel
from minigrad.train import Callback, fit
from minigrad.train.history import History
from tests.device.stand_in_gpus import gpus
from tests.parallel.parallel_runs import on_ranks
from tests.train.small_training import images
from tests.train.small_training import network as small_network

pytestmark = pytest.mark.deep

RNG = np.random.default_rng(0)
UPDATES, BAD = 12, 8  # of an epoch: the second lies two marks after the first update
NEVER = "minigrad.device.cuda.Fetched.done", property(lambda self: False)  # no figure is seen before the epoch ends


@pytest.fixture(autouse=True)
def many_marks(monkeypatch):
    monkeypatch.setattr("minigrad.train.trainer.EVERY", 3)


def network():
    minigrad.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def batches():
    """UPDATES batches of 3 images, and one whose second image is not finite."""
    images = RNG.standard_normal((UPDATES, 3, 1, 4, 4)).astype(np.float32)
    good = [(minigrad.tensor(x), minigrad.tensor(RNG.integers(0, 3, 3))) for x in images]
    images[0, 1] = np.nan
    return good, (minigrad.tensor(images[0]), good[0][1])


SCHEDULES = {
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, UPDATES),
    "sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5), lr_scheduler.StepLR(optimizer, 6)], [5]
    ),
    "none": lambda optimizer: None,
}


class Keep(Callback):
    """The weights and the rate after each update."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.kept = model, optimizer, []

    def on_step(self, history):
        self.kept.append(self.now())

    def now(self):
        return [parameter.tolist() for parameter in self.model.parameters()], self.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("name, late", [("cpu", False), ("none", False), ("one cycle", True), ("sequence", True)])
def test_a_loss_that_is_not_finite_leaves_no_trace(name, late, monkeypatch):
    """Also where the GPU was told to do all updates when the loss is seen; without that batch the training goes on."""
    make, (good, bad), ends = SCHEDULES.get(name, SCHEDULES["one cycle"]), batches(), []
    with gpus(1):
        if late:
            monkeypatch.setattr(*NEVER)
        for found in ([*good[: BAD - 1], bad, *good[BAD:]], good):
            model = network().to("cpu" if name == "cpu" else "cuda")
            optimizer, history = optim.Adam(model.parameters(), lr=0.01), History()
            schedule, keep = make(optimizer), Keep(model, optimizer)
            how = {"schedule": schedule, "history": history, "callbacks": [keep]}
            if found is not good:
                advice = (
                    r"images\[1\] has NaN or inf" if name == "cpu" else "lower the learning rate or clip the gradient"
                )
                with pytest.raises(StateError, match=f"^fit: the loss is nan at step {BAD}; {advice}"):
                    fit(model, found, optimizer, 1, **how)
                assert len(keep.kept) == (UPDATES if late else BAD - 1) and keep.now() == keep.kept[BAD - 2]
                assert history.steps == BAD - 1 and history.running.images == 3 * (BAD - 1)
                assert optimizer.state_dict()["state"][0]["step"] == BAD - 1
                assert all(np.isfinite(buffer.numpy()).all() for buffer in model.buffers())
                assert all(parameter.grad is None for parameter in model.parameters())
            fit(model, good[history.steps :], optimizer, 1, **how)
            ends.append((keep.now(), history.steps, history["loss"], schedule and schedule.state_dict()))
    assert ends[0] == ends[1]


def test_fewer_images_than_ranks_train_and_evaluate_as_on_one_rank():
    """Batches of one and, last, of two images for four shards: some ranks have nothing to do, and nobody waits."""

    def run(world, batch_size):
        model = DataParallel(small_network(), world, shards=4)
        loader = data.Loader(images(5), batch_size, True, prefetch=0, sampler=model.sampler)
        test = data.Loader(images(3), 1, prefetch=0)
        history = fit(model, loader, optim.SGD(model.parameters(), 0.1), 1, test=test)
        return history[0] | {"images_per_second": None}, [part.tolist() for part in model.state_dict().values()]

    for batch_size in (1, 3):
        (wanted,) = on_ranks(run, 1, batch_size)
        assert np.isfinite(wanted[0]["loss"]) and wanted[0]["step"] == -(-5 // batch_size)
        for size in (2, 4):
            assert on_ranks(run, size, batch_size) == [wanted] * size
