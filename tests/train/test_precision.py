"""fit in 16 bits and in TF32: accuracy, updates that are left out, ranks."""

import numpy as np
import pytest

import minigrad
from minigrad import checkpoint, data, nn, ops, optim
from minigrad.amp import GradScaler, autocast_dtype
from minigrad.core.errors import StateError
from minigrad.optim.lr_scheduler import StepLR
from minigrad.parallel import DataParallel, ShardedOptimizer
from minigrad.train import evaluate, fit, predict
from minigrad_kernels.toolchain.modes import tf32_mode as tf32
from tests.parallel.parallel_runs import bits, on_ranks
from tests.train.small_training import images, network


def trained(model=None, epochs=2, world=None, zero=False, **options):
    """(history, bits of parameters and state) of a small training; with a world, of two shards."""
    model = network() if model is None else model
    if world is not None:
        model = DataParallel(model, world, shards=2)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    if zero:
        optimizer = ShardedOptimizer(optimizer, model)
    loader = data.Loader(images(), 11, True, prefetch=0, sampler=getattr(model, "sampler", None))
    history = fit(model, loader, optimizer, epochs, test=data.Loader(images(21, 1), 4, prefetch=0), **options)
    return history, bits(model, optimizer)


class Noted(nn.Module):
    """A network that notes in which precision it was called."""

    def __init__(self):
        super().__init__()
        self.inner, self.seen = network(), []

    def forward(self, x):
        out = self.inner(x)
        self.seen.append((self.training, autocast_dtype() and autocast_dtype().name, tf32(), out.dtype.name))
        return out


@pytest.mark.parametrize("precision", [None, "tf32", "float16", "bfloat16"])
def test_training_and_evaluation_compute_in_the_precision(precision):
    half = precision if precision in ("float16", "bfloat16") else None
    inside = half, precision == "tf32", half or "float32"
    model, loader = Noted(), data.Loader(images(8), 4)
    history, _ = trained(model, precision=precision)
    assert model.seen[0] == (True, *inside) and model.seen[-1] == (False, *inside)
    assert ("loss_scale" in history[-1]) == (precision == "float16")
    assert all(parameter.dtype == np.float32 == parameter.grad.dtype for parameter in model.parameters())
    exact, _ = trained()
    assert (history["loss"] != exact["loss"]) == (half is not None)
    np.testing.assert_allclose(history["loss"], exact["loss"], rtol=0.02)
    np.testing.assert_allclose(history["test_loss"], exact["test_loss"], rtol=0.02)
    evaluate(model, loader, precision=precision)
    assert model.seen[-1] == (False, *inside)
    probabilities, _ = predict(model, loader, precision=precision)
    assert model.seen[-1] == (False, *inside) and probabilities.dtype == np.float32
    assert autocast_dtype() is None and not tf32()


def test_updates_that_are_left_out_step_neither_optimiser_nor_schedule():
    model = network()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    schedule, scaler = StepLR(optimizer, 1, 0.5), GradScaler(2.0**30, backoff_factor=2.0**-8)
    how = {"schedule": schedule, "precision": "float16", "scaler": scaler}
    history = fit(model, data.Loader(images(), 11, prefetch=0), optimizer, 1, **how)
    skipped = history[-1]["skipped"]
    assert 0 < skipped < history.steps == 4
    assert schedule.last_epoch == 4 - skipped
    ages = {state.get("step", 0) for state in optimizer.state.values()}
    assert ages == {4 - skipped} and scaler.get_scale() == 2.0 ** (30 - 8 * skipped)


def test_gradients_that_are_never_finite_end_the_training():
    model = network()
    wrong = lambda scores, labels: ops.cross_entropy(scores, labels) + (scores * 0).sum() ** 0.5
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    before = checkpoint.weights_hash(model)
    with pytest.raises(StateError, match="not finite at any scale"):
        fit(model, data.Loader(images(), 4, prefetch=0), optimizer, 9, loss=wrong, precision="float16")
    assert checkpoint.weights_hash(model) == before


# ---- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"clip": 0.1}, {"accumulate": 3}], ids=["clip", "accumulate"])
def test_a_scale_leaves_no_trace_and_all_ranks_have_the_bits_of_one(options):
    """A scale that is a power of two."""
    assert trained(scaler=GradScaler(2.0**14), **options)[1] == trained(**options)[1]

    def run(world, zero):
        history, found = trained(world=world, zero=zero, precision="float16", **options)
        return [row["loss"] for row in history], found

    (wanted,) = on_ranks(run, 1, False)
    for zero in (False, True):
        assert on_ranks(run, 2, zero) == [wanted] * 2, zero


@pytest.mark.parametrize("zero", [False, True], ids=["whole", "divided"])
def test_all_ranks_leave_out_the_same_updates(zero):
    """One rank's gradient of one parameter overflows, which another rank may own."""

    def run(world):
        minigrad.manual_seed(0)
        model = DataParallel(nn.Linear(3, 2), world)
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        if zero:
            optimizer = ShardedOptimizer(optimizer, model)
        scaler, scales, before = GradScaler(8.0, growth_interval=2), [], bits(model, optimizer)
        for step in range(4):
            optimizer.zero_grad()
            x = np.ones((1, 3), np.float32)
            x[0, 2] = np.inf if step == 1 and world.rank == 1 else 1
            scaler.scale(model(minigrad.Tensor(x))[:, 0].sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append((scaler.get_scale(), scaler.skipped(), bits(model, optimizer) == before))
            before = bits(model, optimizer)
        return scales, before

    one, two = on_ranks(run, 2)
    assert one == two
    assert one[0] == [(8, False, False), (4, True, True), (4, False, False), (8, False, False)]
