"""The training loop."""

import math

import numpy as np
import pytest

import minigrad
from minigrad import data, ops, optim
from minigrad.core.errors import ShapeError, StateError
from minigrad.train import Callback, History, Trainer, evaluate, fit
from tests.train.small_training import images, network


def weights(model):
    return [parameter.detach().numpy().tolist() for parameter in model.parameters()]


class Events(Callback):
    def __init__(self):
        self.seen = []

    def on_start(self, history):
        self.seen.append("start")

    def on_step(self, history):
        self.seen.append(history.running.images)

    def on_epoch(self, history):
        self.seen.append(f"epoch {len(history)}")

    def on_end(self, history):
        self.seen.append("end")


def test_fit_learns_and_says_what_it_did():
    model, events = network(), Events()
    optimizer = optim.Adam(model.parameters(), 3e-2)
    schedule = optim.lr_scheduler.StepLR(optimizer, 3, 0.95)
    loader, test = data.Loader(images(), 16, shuffle=True), data.Loader(images(seed=1), 20)
    history = fit(model, loader, optimizer, 20, test=test, schedule=schedule, callbacks=[events])
    assert history["epoch"] == list(range(1, 21))
    assert history["step"] == [3 * epoch for epoch in range(1, 21)]
    assert history["lr"] == pytest.approx([3e-2 * 0.95**epoch for epoch in range(20)])
    assert history["loss"][-1] < history["loss"][0]
    assert (history[-1]["test_loss"], history[-1]["test_accuracy"]) == evaluate(model, test)
    assert history[-1]["test_accuracy"] > 0.9
    assert all(speed > 0 for speed in history["images_per_second"])
    assert events.seen[:6] == ["start", 16, 32, 44, "epoch 1", 16] and events.seen[-2:] == ["epoch 20", "end"]


def test_one_epoch_equals_the_loop_written_out():
    model, other = network(dropout=0.3), network(dropout=0.3)
    state = minigrad.default_generator.get_state()
    history = fit(model, data.Loader(images(), 16), optim.SGD(model.parameters(), 0.1), 1, clip=0.5)
    minigrad.default_generator.set_state(state)
    optimizer, losses = optim.SGD(other.parameters(), 0.1), []
    for x, y in data.Loader(images(), 16):
        optimizer.zero_grad()
        loss = ops.cross_entropy(other(x), y)
        loss.backward()
        losses += [loss.item()] * len(y)  # the mean is over images, not over batches
        optim.clip_grad_norm_(other.parameters(), 0.5)
        optimizer.step()
    assert weights(model) == weights(other) and history[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-12)


def test_a_trainer_updates_as_fit_does():
    model, other = network(), network()
    history = fit(model, data.Loader(images(), 11), optim.Adam(model.parameters()), 1, accumulate=2)
    trainer, batches = Trainer(other, optim.Adam(other.parameters())), list(data.Loader(images(), 11))
    for pair in zip(batches[::2], batches[1::2], strict=True):
        trainer.update(*pair)
    running = trainer.history.running.row()
    assert weights(model) == weights(other) and trainer.history.steps == 2
    assert (running["loss"], running["accuracy"]) == (history[-1]["loss"], history[-1]["accuracy"])


@pytest.mark.parametrize("count, micro, accumulate", [(48, 8, 2), (44, 5, 4), (30, 7, 10)])
def test_accumulated_batches_give_the_update_of_the_large_batch(count, micro, accumulate):
    """Also where the last small batch, or the last large one, is ragged. In float64, so rounding is 1e-16."""

    def run(batch_size, accumulate):
        model = network().double()
        batches = [(x.double(), y) for x, y in data.Loader(images(count), min(batch_size, count))]
        history = fit(model, batches, optim.Adam(model.parameters(), 1e-2), 2, accumulate=accumulate)
        return [parameter.detach().numpy() for parameter in model.parameters()], history

    (small, history), (large, wanted) = run(micro, accumulate), run(micro * accumulate, 1)
    for a, b in zip(small, large, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
    assert history.steps == wanted.steps == 2 * math.ceil(count / (micro * accumulate))
    np.testing.assert_allclose(history["loss"], wanted["loss"], rtol=1e-10)
    assert history["accuracy"] == wanted["accuracy"]


def test_a_loss_that_is_not_finite_ends_training_before_the_update():
    model = network()
    (x, y), second = data.Loader(images(), 22)
    before, history = weights(model), History()
    bad, optimizer = (
        (minigrad.tensor(np.full((22, 1, 6, 6), np.inf, np.float32)), y),
        optim.SGD(model.parameters(), 0.1),
    )
    message = r"the loss is nan at step 1; images\[0\] has NaN .* \(epoch 1\)"
    with pytest.raises(StateError, match=message):
        fit(model, [second, bad], optimizer, 1, accumulate=2)
    assert weights(model) == before and all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(StateError, match="the test loss is nan after step 2; lower the learning rate"):
        fit(model, [(x, y), second], optimizer, 1, test=[bad], history=history)
    assert len(history) == 0
    model[0].weight.array[0, 0] = np.nan
    with pytest.raises(StateError, match=r"lower the learning rate .* \(epoch 1; 0.weight is not finite\)"):
        fit(model, [second], optimizer, 1)


def test_a_loader_that_runs_dry():
    model = network()
    with pytest.raises(ShapeError, match="loader has no images in epoch 2"):
        fit(model, iter(data.Loader(images(), 4)), optim.SGD(model.parameters(), 0.1), 2)
