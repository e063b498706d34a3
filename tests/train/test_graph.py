"""fit on a GPU of the stand-in: updates by graphs train as those started from Python do, and losses come later."""

import gc

import numpy as np
import pytest

import minigrad
from minigrad import nn, optim
from minigrad.amp import GradScaler
from minigrad.core.errors import MinigradError
from minigrad.data import Compose, Dataset, Loader, Normalize, PadCrop
from minigrad.nn import functional as F
from minigrad.train import Callback, fit
from minigrad.train.history import History
from tests.device.stand_in_gpus import gpus

pytestmark = pytest.mark.deep

RNG = np.random.default_rng(0)
DATA = Dataset(RNG.integers(0, 256, (10, 1, 4, 4), np.uint8), RNG.integers(0, 3, 10), tuple("abc"))
CHANGES = Compose([PadCrop(1), Normalize((0.5,), (0.5,))])


@pytest.fixture
def machine():
    with gpus(1) as found:
        yield found


class Watch(Callback):
    """Notes how many kernels were started from Python for each update.

    asks    the update after which it asks for the running loss
    """

    def __init__(self, machine, asks=None):
        self.machine, self.asks, self.counts, self.running, self.before = machine, asks, [], None, 0

    def started(self):
        """Kernels since the last call."""
        before, self.before = self.before, len(self.machine.launches)
        return self.before - before

    def on_step(self, history):
        self.counts.append(self.started())
        if history.steps == self.asks:
            self.running = history.running.loss, history.running.pending
            self.started()

    def on_epoch(self, history):
        self.started()


def trained(machine, eager, precision=None, epochs=3, asks=6, test=None, **options):
    """(rows, weights, steps of Adam, the Watch) of a training whose epochs have batches of 4, 4 and 2 images."""
    minigrad.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 3)).to("cuda")
    optimizer, watch = optim.Adam(model.parameters(), lr=0.01), Watch(machine, asks)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    loader = Loader(DATA, 4, True, device="cuda", transform=CHANGES)
    more = {"schedule": schedule, "clip": 0.5, "eager": eager, "precision": precision, "callbacks": [watch], **options}
    history = fit(model, loader, optimizer, epochs, test=test, **more)
    rows = [row | {"images_per_second": None} for row in history.rows]
    weights = [parameter.tolist() for parameter in model.parameters()]
    return rows, weights, optimizer.state_dict()["state"][0]["step"], watch


def test_updates_by_graphs_train_as_eager_ones(machine):
    make = lambda: Loader(DATA, 5, device="cuda", transform=CHANGES)
    *eager, watched = trained(machine, True, epochs=4, test=make())
    assert not machine.graph_launches
    *replayed, watch = trained(machine, False, epochs=4, test=make())
    assert eager == replayed and eager[2] == 12 and "test_loss" in eager[0][0]
    assert watch.running == watched.running and watch.running[1] == 0
    # Two runs and a capture of each size of batch; then Python starts one kernel, which makes the batch.
    fewer = [count for count, many in zip(watch.counts, watched.counts, strict=True) if count < many]
    assert fewer == [1] * 6 and machine.graph_launches


def test_graphs_go_with_the_training(machine):
    """At once: no cycle of references keeps them, and the memory that is theirs, until garbage is collected."""
    from minigrad.device.graphs import Graph

    gc.collect()
    gc.disable()
    try:
        assert len(machine.graph_launches) == 0 and trained(machine, False, epochs=2, asks=None)
        assert machine.graph_launches and not [one for one in gc.get_objects() if type(one) is Graph]
    finally:
        gc.enable()


def test_a_scaled_loss_in_graphs(machine):
    """Gradients overflow at first, so the first updates are left out, and the schedule waits."""
    options = {"precision": "float16", "epochs": 2, "asks": None}
    *eager, _ = trained(machine, True, scaler=GradScaler(init_scale=2.0**20, backoff_factor=0.25), **options)
    *replayed, _ = trained(machine, False, scaler=GradScaler(init_scale=2.0**20, backoff_factor=0.25), **options)
    assert eager == replayed and machine.graph_launches and 0 < eager[0][0]["skipped"] < 5 and eager[2] < 6


def test_figures_of_an_interrupted_call_enter_into_the_row(machine, monkeypatch):
    """They may still be on their way when the next call goes on with the history."""
    monkeypatch.setattr("minigrad.device.cuda.Fetched.done", property(lambda self: False))

    class Stop(Callback):
        def on_step(self, history):
            if history.steps == 2:
                raise KeyboardInterrupt

    def row(eager):
        minigrad.manual_seed(0)
        model, batches = nn.Linear(2, 3).to("cuda"), [(minigrad.randn(4, 2), minigrad.tensor([0, 1, 2, 1]))] * 3
        optimizer, history = optim.SGD(model.parameters(), lr=0.5), History()
        with pytest.raises(KeyboardInterrupt):
            fit(model, batches, optimizer, 1, history=history, callbacks=[Stop()], eager=eager)
        fit(model, batches, optimizer, 1, history=history, eager=eager)
        return history["loss"], history["accuracy"], history.steps

    assert row(False) == row(True)


def test_what_cannot_be_captured_is_named_with_the_way_out(machine):
    loss = lambda scores, labels: F.cross_entropy(scores, labels) * scores.sum().item()
    model = nn.Linear(2, 2).to("cuda")
    batches = [(minigrad.randn(2, 2), minigrad.tensor([0, 1]))] * 3
    with pytest.raises(MinigradError, match="in <lambda>: item reads values on the host.*; eager=True trains without"):
        fit(model, batches, optim.SGD(model.parameters()), 1, loss=loss)
    assert len(fit(model, batches, optim.SGD(model.parameters()), 1, loss=loss, eager=True)) == 1
