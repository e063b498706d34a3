"""Pipelines: where a model is cut, and the bits of one stage on any number of stages."""

import copy

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, no_grad, tensor
from minigrad.nn import functional as F
from minigrad.parallel import Pipeline, local
from minigrad.parallel.pipeline import balanced, costs_of
from minigrad.parallel.schedules import SCHEDULES
from minigrad.train import evaluate
from tests.device.stand_in_gpus import gpus
from tests.parallel.parallel_runs import bits, on_ranks

# ---- where a model is cut --------------------------------------------------------------------------------------------


CUTS = [
    ([1], [1]),
    ([1, 1, 1, 1], [2, 2]),
    ([5, 1, 1, 1, 1], [1, 4]),
    ([1, 2, 3, 4], [2, 1, 1]),
    ([0, 0, 9], [1, 1, 1]),
]


def test_the_costliest_stage_costs_as_little_as_can_be():
    for costs, lengths in CUTS:
        assert balanced(costs, len(lengths)) == lengths
    assert costs_of(nn.Sequential(nn.Linear(2, 3), nn.ReLU())) == pytest.approx([1.005, 0.005])


# ---- the bits of one stage -------------------------------------------------------------------------------------------

BATCH, STEPS = 16, 2


def build():
    """Convolution, batch norm and dropout, with a boundary where an image lies in C order, before noise that is a
    function of the place in memory."""
    minigrad.manual_seed(3)
    image = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Unflatten(1, (6, 6, 6))
    noise = nn.Dropout2d(0.2), nn.Dropout(0.2), nn.Conv2d(6, 4, 3), nn.Flatten()
    return nn.Sequential(*image, *noise, nn.Linear(64, 12), nn.BatchNorm1d(12), nn.Linear(12, 5))


def batch(step):
    numbers = np.random.default_rng(step)
    return Tensor(numbers.standard_normal((BATCH, 1, 8, 8)).astype(np.float32)), Tensor(numbers.integers(0, 5, BATCH))


def gradients_of(module):
    return {name: p.grad.numpy().tobytes() for name, p in module.named_parameters()}


def piped(world, schedule, microbatches):
    pipe = Pipeline(build(), world, microbatches, schedule)
    minigrad.manual_seed(5)
    found = []
    for step in range(STEPS):
        pipe.zero_grad()
        found.append((pipe.train_step(*batch(step)), gradients_of(pipe.module)))
    return *zip(*found, strict=True), bits(pipe), pipe.stage, pipe.peak


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages, microbatches", [(3, 2), (4, 8)])
def test_gradients_losses_and_state_have_the_bits_of_one_stage(schedule, stages, microbatches):
    ((losses, gradients, state, *_),) = on_ranks(piped, 1, "gpipe", microbatches)
    seen = []
    for got_losses, got_gradients, got_state, stage, peak in on_ranks(piped, stages, schedule, microbatches):
        assert got_losses == losses and got_state == state
        assert all(got.items() <= wanted.items() for got, wanted in zip(got_gradients, gradients, strict=True))
        seen += got_gradients[0]
        assert peak == min(microbatches, stages - stage if schedule == "1f1b" else microbatches)
    assert seen == list(gradients[0])  # every parameter is in one stage


PLACES = "interpreter", "cuda:0", "cpu", "cuda:1", "interpreter"


def test_stages_lie_on_any_device_and_have_the_gradients_of_the_model():
    """No gradient is asked of, or sent to, a stage that has none to compute."""
    minigrad.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)]
    whole = nn.Sequential(*layers)
    x, y = Tensor(np.arange(16, dtype=np.float32).reshape(4, 2, 2) / 16), tensor([0, 1, 1, 0])

    def run(world):
        pipe = Pipeline(copy.deepcopy(whole), world, 2, balance=[1] * 5).to(PLACES[world.rank])
        loss = pipe.train_step(x if world.rank == 0 else None, y if world.rank == 4 else None)
        assert pipe.device == pipe(x).device == (PLACES[world.rank] if [*pipe.parameters()] else "cpu")
        return loss, [p.requires_grad and p.grad.tolist() for p in pipe.parameters()]

    with gpus(2):  # without a limit for all of it, as kernels may have to be compiled
        losses, found = zip(*local.run_local(run, 5), strict=True)
    (loss := F.cross_entropy(whole(x), y)).backward()
    assert losses == pytest.approx([loss.item()] * 5, rel=1e-6)
    for got, p in zip(sum(found, []), whole.parameters(), strict=True):
        np.testing.assert_allclose(got, p.requires_grad and p.grad.tolist(), rtol=1e-5, atol=1e-7)


# ---- inference and state ---------------------------------------------------------------------------------------------


def test_every_rank_gets_the_outputs_for_a_batch_of_any_size_and_can_evaluate():
    loader = [batch(step) for step in range(3)]

    def run(world):
        pipe = Pipeline(build(), world, 4)
        found = [pipe.eval()(loader[0][0][:count] if world.rank == 0 else None) for count in (1, 3, 8)]
        assert evaluate(pipe.train(), loader) == pytest.approx(evaluate(build(), loader), rel=1e-5)
        return found

    model = build().eval()
    for outputs in on_ranks(run, 3):
        for count, found in zip((1, 3, 8), outputs, strict=True):
            with no_grad():  # of a model whose convolutions and batch norms are folded
                np.testing.assert_allclose(found, model(loader[0][0][:count]).numpy(), rtol=1e-5, atol=1e-6)


def test_a_state_fits_any_number_of_stages():
    changed, whole = {name: value * 2 + 1 for name, value in build().state_dict().items()}, build()
    whole.load_state_dict(changed)

    def run(world):
        pipe = Pipeline(build(), world)
        found = pipe.load_state_dict(changed)
        assert found.missing_keys == found.unexpected_keys == []
        assert pipe.load_state_dict({}, strict=False).missing_keys == list(changed)
        return bits(pipe)

    for ranks in (1, 3):
        assert on_ranks(run, ranks) == [bits(whole)] * ranks
