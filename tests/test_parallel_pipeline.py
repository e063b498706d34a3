"""Pipelines: schedules on paper, where a model is cut, and the bits of the unsplit model on any number of stages."""

import copy
import itertools

import numpy as np
import pytest
from minigrad.parallel.sums import pairwise

import minigrad
from minigrad import Tensor, nn, no_grad, optim, tensor
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.device import random
from minigrad.nn import functional as F
from minigrad.parallel import local
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.cut import balanced, costs_of, lengths_of
from minigrad.parallel.errors import CommunicationError, DisagreementError
from minigrad.parallel.local import LocalTransport, run_local
from minigrad.parallel.pipeline import Pipeline
from minigrad.parallel.schedules import BACKWARD, FORWARD, SCHEDULES, gpipe, simulate
from minigrad.parallel.sync_batch_norm import SyncBatchNorm
from minigrad.train import evaluate
from minigrad_kernels.toolchain import set_threads, threads

from .test_parallel_transfer import Rendezvous

LIMIT = 30.0  # seconds


@pytest.fixture(autouse=True)
def one_kernel_thread():
    """Ranks are threads already."""
    before = threads()
    set_threads(1)
    yield
    set_threads(before)


# ---- schedules -------------------------------------------------------------------------------------------------------

SIZES = list(itertools.product((1, 2, 3, 4, 7), (1, 2, 3, 4, 9)))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages, microbatches", SIZES)
def test_each_stage_does_every_pass_once_and_in_the_order_of_the_microbatches(name, stages, microbatches):
    for stage in range(stages):
        plan = SCHEDULES[name](stage, stages, microbatches)
        for what in (FORWARD, BACKWARD):
            assert [number for kind, number in plan if kind == what] == list(range(microbatches))
        assert all(plan.index((FORWARD, n)) < plan.index((BACKWARD, n)) for n in range(microbatches))


@pytest.mark.parametrize("stages, microbatches", SIZES)
def test_schedules_have_the_bubble_and_the_memory_that_the_papers_state(stages, microbatches):
    """Busy m / (m + n - 1); GPipe keeps all m microbatches, 1F1B at most n - s."""
    for name in SCHEDULES:
        found = simulate(name, stages, microbatches)
        assert found.makespan == 3 * (microbatches + stages - 1)
        assert found.busy == pytest.approx(microbatches / (microbatches + stages - 1))
        bounds = [stages - s if name == "1f1b" else microbatches for s in range(stages)]
        assert found.peak == tuple(min(bound, microbatches) for bound in bounds)


def test_transfers_take_time_between_stages_alone():
    assert simulate(gpipe, 1, 5, transfer=10).makespan == simulate(gpipe, 1, 5).makespan
    assert simulate("gpipe", 3, 1, transfer=0.5).makespan == 9 + 4 * 0.5
    slow, fast = (simulate("1f1b", 4, 8, transfer=t).makespan for t in (1, 0))
    assert slow > fast
    rows = simulate("1f1b", 2, 3, forward=2, backward=5).rows
    assert all(row[0][2] >= stage * 2 and row[-1][0] == BACKWARD for stage, row in enumerate(rows))


def test_a_schedule_that_would_wait_for_ever_is_refused():
    with pytest.raises(StateError, match="wait for ever"):
        simulate(lambda stage, stages, m: gpipe(stage, stages, m)[:: -1 if stage else 1], 2, 2)
    with pytest.raises(ShapeError, match="wanted 'gpipe' or '1f1b'"):
        simulate("interleaved", 2, 2)


# ---- where to cut ----------------------------------------------------------------------------------------------------


def test_stages_are_balanced_as_well_as_contiguous_runs_can_be():
    random_costs = np.random.default_rng(0)
    for layers, stages in itertools.product((1, 2, 5, 8), (1, 2, 3, 5)):
        if stages > layers:
            continue
        costs = random_costs.random(layers).tolist()
        cuts = itertools.combinations(range(1, layers), stages - 1)
        best = min(max(sum(costs[a:b]) for a, b in itertools.pairwise([0, *cut, layers])) for cut in cuts)
        lengths = balanced(costs, stages)
        ends = [0, *itertools.accumulate(lengths)]
        assert min(lengths) >= 1 and ends[-1] == layers and len(lengths) == stages
        assert max(sum(costs[a:b]) for a, b in itertools.pairwise(ends)) == pytest.approx(best, abs=1e-12)


def test_costs_are_parameters_and_where_known_multiply_adds():
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    conv, relu, flatten, linear = costs_of(model)
    assert relu == flatten == 0.01 / 4
    assert conv - relu == pytest.approx(80 / 2970) and linear - relu == pytest.approx(2890 / 2970)
    counted = costs_of(model, (2, 1, 8, 8))
    macs = (8 * 36 * 9, 8 * 36 * 10)
    assert counted[0] - conv == pytest.approx(macs[0] / sum(macs)) and counted[1] == relu
    assert lengths_of(model, 2, None, (2, 1, 8, 8)) in ([1, 3], [2, 2], [3, 1])
    assert costs_of(nn.Sequential(nn.ReLU(), nn.ReLU())) == [0.005, 0.005]


# ---- the bits of the unsplit model -----------------------------------------------------------------------------------

BATCH, STEPS = 16, 2


def build():
    """Convolution, batch norm and dropout, with a boundary where an image lies in C order, before noise that is a
    function of the place in memory."""
    minigrad.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Unflatten(1, (6, 6, 6)),
        nn.Dropout2d(0.2),
        nn.Dropout(0.2),
        nn.Conv2d(6, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 12),
        nn.BatchNorm1d(12),
        nn.Linear(12, 5),
    )


def batch(step, replica):
    numbers = np.random.default_rng([step, replica])
    return Tensor(numbers.standard_normal((BATCH, 1, 8, 8)).astype(np.float32)), Tensor(numbers.integers(0, 5, BATCH))


def accumulated(model, step, replica, microbatches):
    """One replica's gradients: the unsplit model, called with one microbatch after another; returns the mean loss."""
    images, labels = batch(step, replica)
    size, losses = BATCH // microbatches, []
    for number in range(microbatches):
        x, part = images[number * size : (number + 1) * size], labels[number * size : (number + 1) * size]
        for position, layer in enumerate(model):
            drawer = (replica * microbatches + number) * len(model) + position
            with random.drawing_from(random.generator().of_shard(drawer)):
                x = layer(x)
        loss = F.cross_entropy(x, part)
        losses.append(loss.item())
        (loss * (1 / microbatches)).backward()
    return sum(losses) / microbatches


def bits(tensors):
    return {name: np.ascontiguousarray(t.numpy()).tobytes() for name, t in tensors.items()}


def unsplit(microbatches, replicas):
    """(losses, bits of all gradients, bits of the state of replica 0) after some steps."""
    models = [build() for _ in range(replicas)]
    minigrad.manual_seed(5)
    rules = [optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    found, gradients = [], []
    for step in range(STEPS):
        for rule in rules:
            rule.zero_grad()
        found.append(np.mean([accumulated(m, step, r, microbatches) for r, m in enumerate(models)]))
        for parameters in zip(*(model.parameters() for model in models), strict=True):
            total = pairwise([p.grad.data for p in parameters])
            for p in parameters:
                p.grad = Tensor(total / np.float32(replicas) if replicas > 1 else total.copy(order="K"))
        gradients.append(bits({n: p.grad for n, p in models[0].named_parameters()}))
        for rule in rules:
            rule.step()
        random.generator().step += 1
    return found, gradients, bits(models[0].state_dict())


def piped(world, schedule, stages, microbatches):
    pipe = Pipeline(build(), world, microbatches, schedule, stages)
    minigrad.manual_seed(5)
    rule = optim.SGD(pipe.parameters(), lr=0.1, momentum=0.9) if [*pipe.parameters()] else None
    losses, gradients = [], []
    for step in range(STEPS):
        pipe.zero_grad()
        losses.append(pipe.train_step(*batch(step, pipe.replica)))
        gradients.append(bits({n: p.grad for n, p in pipe.module.named_parameters()}))
        if rule:
            rule.step()
    return losses, gradients, bits(pipe.state_dict()), pipe.stage, pipe.replica, pipe.peak


CASES = [(1, 1, 4), (2, 1, 4), (3, 1, 2), (4, 1, 8), (7, 1, 4), (2, 2, 4), (2, 3, 2), (1, 4, 2)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages, replicas, microbatches", CASES)
def test_gradients_losses_and_state_have_the_bits_of_the_unsplit_model(schedule, stages, replicas, microbatches):
    losses, gradients, state = unsplit(microbatches, replicas)
    for found in run_local(piped, stages * replicas, schedule, stages, microbatches, timeout=LIMIT):
        got_losses, got_gradients, got_state, stage, replica, peak = found
        assert got_losses == losses if replicas == 1 else np.allclose(got_losses, losses, rtol=1e-15)
        for got, wanted in zip(got_gradients, gradients, strict=True):
            for name, value in got.items():
                assert value == wanted[name], name
        assert list(got_state) == list(state)
        for name, value in got_state.items():
            assert value == state[name] or (replica and "running" in name), name
        assert peak == min(microbatches, stages - stage if schedule == "1f1b" else microbatches)


def test_every_parameter_is_in_one_stage():
    found = run_local(piped, 4, "1f1b", 4, 2, timeout=LIMIT)
    names = [name for _, gradients, *_ in found for name in gradients[0]]
    assert names == [name for name, _ in build().named_parameters()]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sends_that_are_done_only_when_taken_lead_to_no_deadlock(monkeypatch, schedule):
    monkeypatch.setattr(local, "LocalTransport", Rendezvous)
    losses, gradients, _ = unsplit(4, 1)
    for found in run_local(piped, 4, schedule, 4, 4, timeout=LIMIT):
        assert found[0] == losses
        assert all(value == gradients[-1][name] for name, value in found[1][-1].items())


@pytest.mark.parametrize("stages, microbatches", [(2, 1), (4, 1), (5, 3), (3, 9)])
def test_no_number_of_stages_and_microbatches_leads_to_a_deadlock(stages, microbatches):
    def run(world, schedule):
        minigrad.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(stages)))
        x = Tensor(np.ones((microbatches * 2, 3), np.float32))
        return Pipeline(model, world, microbatches, schedule).train_step(x, x, F.mse_loss)

    assert len({loss for name in SCHEDULES for loss in run_local(run, stages, name, timeout=LIMIT)}) == 1


# ---- what stages may be like -----------------------------------------------------------------------------------------


def test_stages_without_parameters_or_with_frozen_ones_train_the_others():
    """No gradient is asked of, or sent to, a stage that has none to compute."""

    def run(world):
        minigrad.manual_seed(0)
        layers = [nn.Flatten(), nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)]
        model = nn.Sequential(*layers)
        whole = copy.deepcopy(model)
        pipe = Pipeline(model, world, 2, balance=[1] * 5)
        x, y = Tensor(np.arange(16, dtype=np.float32).reshape(4, 2, 2) / 16), tensor([0, 1, 1, 0])
        pipe.train_step(x if world.rank == 0 else None, y if world.rank == 4 else None)
        for part in (slice(0, 2), slice(2, 4)):
            (F.cross_entropy(whole(x[part]), y[part]) * 0.5).backward()
        wanted = {name: p.grad for name, p in whole.named_parameters()}
        for name, p in pipe.module.named_parameters():
            assert (p.grad is None) == (wanted[name] is None) == name.startswith("1.")
            assert p.grad is None or p.grad.numpy().tobytes() == wanted[name].numpy().tobytes()

    run_local(run, 5, timeout=LIMIT)


def test_replicas_start_with_the_state_of_the_first():
    def run(world):
        minigrad.manual_seed(world.rank)
        pipe = Pipeline(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), world, stages=2)
        return pipe.stage, bits(pipe.module.state_dict())

    found = run_local(run, 4, timeout=LIMIT)
    assert found[0] == found[2] and found[1] == found[3] and found[0] != found[1]


def test_batch_norm_of_all_replicas_by_sync_batch_norm():
    """Two replicas of two stages, with one microbatch each: the statistics of the whole batch."""

    def model():
        minigrad.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6), nn.BatchNorm1d(6)).double()

    x, y = (Tensor(np.random.default_rng(s).standard_normal((8, n))) for s, n in ((0, 4), (1, 6)))

    def run(world):
        pipe = Pipeline(SyncBatchNorm.convert(model()), world, 1, stages=2, balance=[2, 3])
        own = slice(pipe.replica * 4, pipe.replica * 4 + 4)
        loss = pipe.train_step(x[own], y[own], F.mse_loss)
        return loss, {n: p.grad.numpy() for n, p in pipe.module.named_parameters()}, pipe.state_dict()

    whole = model()
    loss = F.mse_loss(whole(x), y)
    loss.backward()
    wanted = {name: p.grad.numpy() for name, p in whole.named_parameters()}
    for found, gradients, state in run_local(run, 4, timeout=LIMIT):
        assert found == pytest.approx(loss.item(), rel=1e-12)
        for name, g in gradients.items():
            np.testing.assert_allclose(g, wanted[name], rtol=1e-10, atol=1e-13)
        for name, value in whole.state_dict().items():
            np.testing.assert_allclose(state[name].numpy(), value.numpy(), rtol=1e-12, atol=1e-15)


# ---- inference and state ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 8])
def test_every_rank_gets_the_outputs_for_a_batch_of_any_size(count):
    images = batch(0, 0)[0][:count]

    def run(world):
        pipe = Pipeline(build(), world, 4).eval()
        with no_grad():
            inside = pipe(images if world.rank == 0 else None)
        outside = pipe(images if world.rank == 0 else None)
        assert not outside.requires_grad and inside.numpy().tobytes() == outside.numpy().tobytes()
        return outside.numpy()

    model, pieces = build().eval(), min(4, count)
    with no_grad():
        ends = [number * count // pieces for number in range(pieces + 1)]
        wanted = np.concatenate([model(images[a:b]).numpy() for a, b in itertools.pairwise(ends)])
    for found in run_local(run, 3, timeout=LIMIT):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)  # whose convolutions and batch norms are folded
        assert found.shape == (count, 5)


def test_a_pipeline_can_be_evaluated():
    loader = [batch(step, 0) for step in range(3)]

    def run(world):
        pipe = Pipeline(build(), world, 2)
        found = evaluate(pipe, loader)
        assert pipe.training and all(module.training for module in pipe.modules())
        return found

    for found in run_local(run, 2, timeout=LIMIT):
        assert found == pytest.approx(evaluate(build(), loader), rel=1e-5)


def test_a_state_fits_any_number_of_stages():
    def run(world, state):
        pipe = Pipeline(build(), world)
        before = pipe.state_dict()
        found = pipe.load_state_dict(state)
        assert found.missing_keys == found.unexpected_keys == []
        assert bits(before) == bits(build().state_dict()) and list(before) == list(state)
        after = pipe.state_dict(prefix="net.")
        assert list(after) == ["net." + name for name in state]
        return {name.removeprefix("net."): value for name, value in after.items()}

    changed = {name: value * 2 + 1 for name, value in build().state_dict().items()}
    state = changed
    for ranks in (4, 2, 1):
        state = run_local(run, ranks, state, timeout=LIMIT)[-1]
        assert bits(state) == bits(changed)
    whole = build()
    whole.load_state_dict(state)
    assert bits(whole.state_dict()) == bits(changed)


def test_a_state_in_another_type_and_order_is_gathered_as_it_is():
    def run(world):
        pipe = Pipeline(build(), world)
        pipe.module.double()
        return pipe.state_dict()

    for state in run_local(run, 2, timeout=LIMIT):
        assert bits(state) == bits(build().double().state_dict())
        assert all(value.data.flags.c_contiguous for value in state.values())


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda s: s.pop("0.weight"), "missing 0.weight"),
        (lambda s: s.update(other=tensor(1)), "unexpected other"),
        (lambda s: s.update({"13.bias": tensor([1.0])}), r"13.bias has shape \(1,\), wanted \(5,\)"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_on_every_rank(change, words):
    state = dict(build().state_dict())
    change(state)

    def run(world):
        pipe = Pipeline(build(), world)
        with pytest.raises(ShapeError, match=words):
            pipe.load_state_dict(state)
        assert bits(pipe.state_dict()) == bits(build().state_dict())
        if "13.bias" in words:
            return
        found = pipe.load_state_dict(state, strict=False)
        assert found.missing_keys or found.unexpected_keys

    run_local(run, 3, timeout=LIMIT)


# ---- what is refused -------------------------------------------------------------------------------------------------


class Silent(LocalTransport):
    """Fails if anything is sent."""

    def post(self, to, channel, header, payload):
        raise AssertionError(f"something was sent: {header}")


def four():
    world = Communicator(Silent(0, local._Mail(4)), timeout=1.0)
    assert world.size == 4
    return world


@pytest.mark.parametrize(
    "make, kind, words",
    [
        (lambda w: Pipeline(nn.Linear(2, 2), w), KindError, "model is a Linear, wanted a Sequential"),
        (lambda w: Pipeline(build(), "all"), KindError, "world is 'all'"),
        (lambda w: Pipeline(build(), w, 0), ShapeError, "microbatches is 0, wanted at least 1"),
        (lambda w: Pipeline(build(), w, 2.5), KindError, "microbatches is 2.5"),
        (lambda w: Pipeline(build(), w, schedule="interleaved"), ShapeError, "'gpipe' or '1f1b'"),
        (lambda w: Pipeline(build(), w, stages=3), ShapeError, "stages is 3, wanted a divisor of the 4 ranks"),
        (lambda w: Pipeline(build(), w, stages=8), ShapeError, "wanted a divisor of the 4 ranks"),
        (lambda w: Pipeline(nn.Sequential(nn.ReLU()), w), ShapeError, "at most one for each of the 1 layers"),
        (lambda w: Pipeline(build(), w, balance=14), KindError, "balance is 14, wanted a list of 4 numbers"),
        (lambda w: Pipeline(build(), w, balance=[7, 7]), ShapeError, "wanted 4 numbers that add up to 14"),
        (lambda w: Pipeline(build(), w, balance=[1, 1, 1, 1]), ShapeError, "add up to 14"),
        (lambda w: Pipeline(build(), w, balance=[0, 4, 5, 5]), ShapeError, "balance is 0, wanted at least 1"),
        (lambda w: Pipeline(nn.Sequential(*[nn.Linear(2, 2)] * 4), w), StateError, "layers 0 and 1 share a Tensor"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_sent(make, kind, words):
    with pytest.raises(kind, match=words):
        make(four())


@pytest.mark.parametrize(
    "inputs, targets, kind, words",
    [
        (9, 9, ShapeError, "inputs has 9 rows, wanted a multiple of the 4 microbatches"),
        (8, 6, ShapeError, "targets has 6 rows, wanted a multiple"),
        (0, 0, ShapeError, "inputs has 0 rows"),
        ("images", 8, KindError, "inputs is str, wanted a Tensor"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_by_every_rank_that_sees_it(inputs, targets, kind, words):
    def rows(count):
        return Tensor(np.ones((count, 3), np.float32)) if isinstance(count, int) else count

    def run(world):
        pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), world, 4)
        with pytest.raises(kind, match=words):
            pipe.train_step(rows(inputs), rows(targets), F.mse_loss)
        assert pipe.peak == 0
        return pipe.train_step(rows(8), rows(8), F.mse_loss)  # nothing was left behind

    first, second = run_local(run, 2, timeout=LIMIT)
    assert first == second


def test_a_first_stage_without_inputs_is_told_so():
    labels = batch(0, 0)[1]
    with pytest.raises(KindError, match="inputs is NoneType"):
        run_local(lambda world: Pipeline(build(), world).train_step(None, labels), 2, timeout=LIMIT)
    with pytest.raises(KindError, match="inputs is a NoneType, wanted a Tensor"):
        run_local(lambda world: Pipeline(build(), world)(None), 2, timeout=LIMIT)


def test_ranks_with_other_models_or_options_are_told_so():
    with pytest.raises(DisagreementError, match="microbatches is 1 on rank 0 and 2 on rank 1"):
        run_local(lambda world: Pipeline(build(), world, world.rank + 1), 2, timeout=LIMIT)
    with pytest.raises(DisagreementError, match=r"0.weight is float32\(2,2\) on rank 0"):
        run_local(
            lambda world: Pipeline(nn.Sequential(nn.Linear(2, 2 + world.rank), nn.ReLU()), world), 2, timeout=LIMIT
        )


def test_an_error_in_one_stage_ends_all():
    def run(world):
        pipe = Pipeline(build(), world, 4)
        try:
            pipe.train_step(*batch(0, 0), loss=lambda scores, labels: scores)
        except CommunicationError as error:
            assert world.rank < 2 and "wanted a scalar" in str(error)
            raise

    with pytest.raises(ShapeError, match=r"loss gave shape \(4, 5\), wanted a scalar"):
        run_local(run, 3, timeout=LIMIT)
