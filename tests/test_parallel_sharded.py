"""ShardedOptimizer: the bits of the optimiser alone, of which each rank keeps the state of its part."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, nn, optim
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.nn import functional as F
from minigrad.optim import lr_scheduler
from minigrad.parallel import DataParallel, ShardedOptimizer

from .parallel_runs import bits, on_ranks, outcomes

X = np.random.default_rng(1).standard_normal((8, 2, 5, 5)).astype(np.float32)
Y = np.arange(8) % 3


def network():
    minigrad.manual_seed(4)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(27, 7), nn.Tanh(), nn.Linear(7, 3))


def grouped(kind, **options):
    """An optimiser of two groups with other options."""

    def make(model):
        parameters = list(model.parameters())
        groups = [{"params": parameters[3:]}, {"params": parameters[:3], "lr": 0.02, "weight_decay": 0.1}]
        return kind(groups, lr=0.05, **options)

    return make


OPTIMIZERS = {
    "sgd": grouped(optim.SGD, momentum=0.9, nesterov=True),
    "plain sgd": grouped(optim.SGD),
    "adam": grouped(optim.Adam, amsgrad=True),
    "adamw": grouped(optim.AdamW),
    "rmsprop": grouped(optim.RMSprop, momentum=0.5, centered=True),
    "adagrad": grouped(optim.Adagrad, lr_decay=0.1, initial_accumulator_value=0.5),
}


def built(world, make, whole=False, bucket_bytes=200):
    """(model, optimizer); whole None: every rank has all of the state."""
    model = DataParallel(network(), world, shards=4, bucket_bytes=bucket_bytes)
    optimizer = make(model)
    return model, optimizer if whole is None else ShardedOptimizer(optimizer, model, whole)


def update(model, optimizer):
    optimizer.zero_grad()
    for x, y in model.shards((Tensor(X), Tensor(Y))):
        F.cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_bits_are_those_of_the_optimiser_alone(kind):
    def run(world, whole):
        model, optimizer = built(world, OPTIMIZERS[kind], whole)
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, 9)
        for _ in range(4):
            update(model, optimizer)
            schedule.step()
        assert optimizer.name == type(getattr(optimizer, "optimizer", optimizer)).__name__
        return bits(model, optimizer), optimizer.state_dict()["param_groups"]

    (wanted,) = on_ranks(run, 1, None)
    for size, whole in ((1, False), (2, False), (4, True)):
        for found in on_ranks(run, size, whole):
            assert found == wanted, (size, whole)


@pytest.mark.parametrize("size", [2, 4])
def test_each_rank_keeps_its_part_of_the_state(size):
    def run(world, whole, bucket_bytes):
        model, optimizer = built(world, OPTIMIZERS["adamw"], whole, bucket_bytes)
        update(model, optimizer)
        assert (whole is None) == all(p.grad is not None for p in model.parameters())
        return sum(
            v.nbytes for entries in optimizer.state.values() for v in entries.values() if isinstance(v, np.ndarray)
        )

    everything = on_ranks(run, 1, None, None)[0]
    assert everything == 2 * 4 * sum(p.numel() for p in network().parameters())
    for bucket_bytes, buckets in ((None, 1), (200, 4)):
        parts = on_ranks(run, size, False, bucket_bytes)
        assert sum(parts) == everything
        assert max(parts) <= everything / size + 2 * 4 * size * buckets  # buckets are filled up to equal parts


def test_a_state_goes_on_with_any_number_of_ranks(tmp_path):
    make = OPTIMIZERS["adam"]

    def first(world, whole):
        model, optimizer = built(world, make, whole)
        for _ in range(2):
            update(model, optimizer)
        checkpoint.save(tmp_path / "kept", model, optimizer, world=world)
        for _ in range(2):
            update(model, optimizer)
        return bits(model, optimizer)

    def second(world, whole, bucket_bytes):
        model, optimizer = built(world, make, whole, bucket_bytes)
        update(model, optimizer)  # to be forgotten
        checkpoint.load(tmp_path / "kept", model, optimizer, world=world)
        for _ in range(2):
            update(model, optimizer)
        return bits(model, optimizer)

    for size, whole in ((4, False), (1, None)):
        wanted = on_ranks(first, size, whole)
        for again, *options in ((1, None, None), (2, False, None), (4, True, 100), (2, False, 100)):
            assert on_ranks(second, again, *options) == wanted[:1] * again


def test_an_optimiser_may_have_stepped_before():
    def run(world, whole):
        model, optimizer = built(world, OPTIMIZERS["adam"], None)
        update(model, optimizer)
        if whole is not None:
            optimizer = ShardedOptimizer(optimizer, model, whole)
        update(model, optimizer)
        return bits(model, optimizer)

    assert on_ranks(run, 2, False) == on_ranks(run, 2, True) == on_ranks(run, 1, None) * 2


@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_other_types_names_and_devices(place):
    def run(world, whole):
        minigrad.manual_seed(1)
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3).requires_grad_(False), nn.Linear(3, 1).to("float64"))
        model = DataParallel(model.to(place), world, shards=2)
        optimizer = optim.Adam([(name, p) for name, p in model.named_parameters() if p.requires_grad], lr=0.1)
        if whole is not None:
            optimizer = ShardedOptimizer(optimizer, model, whole)
        for _ in range(2):
            for (x,) in model.shards((Tensor(X[:, :, 0, 0]).to(place),)):
                hidden = model.module[1](model.module[0](x))
                model.module[2](hidden.to("float64")).sum().backward()
            optimizer.step()
        state = optimizer.state_dict()
        assert state["param_groups"][0]["param_names"][0] == "module.0.weight"
        optimizer.load_state_dict(state)
        return bits(model, optimizer)

    assert on_ranks(run, 2, False) == on_ranks(run, 1, None) * 2


def test_states_that_do_not_fit_are_refused_and_change_nothing():
    def run(world):
        model, optimizer = built(world, OPTIMIZERS["sgd"])
        update(model, optimizer)
        before, state = bits(model, optimizer), optimizer.state_dict()
        for wrong in ({}, {**state, "param_groups": state["param_groups"][:1]}):
            with pytest.raises(ShapeError, match=r"SGD\.load_state_dict: "):
                optimizer.load_state_dict(wrong)
        state["state"][0]["momentum_buffer"] = np.zeros(3)
        with pytest.raises(ShapeError, match="momentum_buffer"):
            optimizer.load_state_dict(state)
        return bits(model, optimizer) == before

    assert on_ranks(run, 2) == [True, True]


def test_steps_with_a_closure():
    def run(world, whole):
        model, optimizer = built(world, OPTIMIZERS["sgd"], whole)

        def closure():
            optimizer.zero_grad()
            for x, y in model.shards((Tensor(X), Tensor(Y))):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
            return loss.item()

        with minigrad.no_grad():
            losses = [optimizer.step(closure) for _ in range(2)]
        with pytest.raises(KindError, match="closure is 3, wanted a function"):
            optimizer.step(3)
        return losses[1] < losses[0], bits(model, optimizer)

    wanted = on_ranks(run, 1, None)
    assert wanted[0][0] and on_ranks(run, 2, False) == wanted * 2


def test_a_step_is_a_change_that_backward_hears_of():
    def run(world):
        model, optimizer = built(world, OPTIMIZERS["sgd"])
        update(model, optimizer)
        model.eval()
        loss = model(Tensor(X)).sum()
        optimizer.step()
        with pytest.raises(StateError, match="changed"):
            loss.backward()

    on_ranks(run, 2)


def test_parameters_may_be_given_other_arrays():
    def run(world, whole):
        model, optimizer = built(world, OPTIMIZERS["adam"], whole)
        update(model, optimizer)
        for p in model.parameters():
            p.data = p.data * np.float32(0.5)
        update(model, optimizer)
        return bits(model, optimizer)

    assert on_ranks(run, 2, False) == on_ranks(run, 1, None) * 2


def test_a_state_without_entries_begins_anew():
    def run(world, whole):
        model, optimizer = built(world, OPTIMIZERS["adagrad"], whole)
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {}})
        update(model, optimizer)
        return bits(model, optimizer)

    assert on_ranks(run, 2, False) == on_ranks(run, 1, None) * 2


def test_gradients_filled_with_zeros():
    def run(world, whole):
        model, optimizer = built(world, OPTIMIZERS["sgd"], whole)
        update(model, optimizer)
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()  # by momentum alone
        return bits(model, optimizer)

    assert on_ranks(run, 2, False) == on_ranks(run, 2, None)


def test_clipping_wants_whole_gradients():
    def run(world, whole):
        model, optimizer = built(world, OPTIMIZERS["sgd"], whole)
        optimizer.zero_grad()
        for x, y in model.shards((Tensor(X), Tensor(Y))):
            F.cross_entropy(model(x), y).backward()
        norm = optim.clip_grad_norm_(model.parameters(), 0.01).item()
        optimizer.step()
        return norm, bits(model, optimizer)

    assert on_ranks(run, 2, True) == on_ranks(run, 1, None) * 2


def test_the_best_comes_back():
    def run(world, whole):
        model, optimizer = built(world, OPTIMIZERS["adam"], whole)
        schedule = lr_scheduler.RestoreBest(optimizer, model=model)
        found = []
        for metric in (3.0, 2.0, 5.0, 1.0, 4.0):
            update(model, optimizer)
            schedule.step(metric)
            found.append(bits(model, optimizer))
        return found, [group["lr"] for group in optimizer.param_groups]

    (wanted,) = on_ranks(run, 1, None)
    states, rates = wanted
    assert states[2] == states[1] and states[4] == states[3] and rates == [0.0125, 0.005]
    assert on_ranks(run, 2, False) == [wanted] * 2 and on_ranks(run, 4, True) == [wanted] * 4


# ---- what is refused -------------------------------------------------------------------------------------------------


def sgd(model):
    return optim.SGD(model.parameters(), lr=0.1)


REFUSED = {
    "module": (KindError, "got SGD and Sequential, wanted an Opt", lambda m: ShardedOptimizer(sgd(m), m.module)),
    "optimizer": (KindError, "got list and DataParallel", lambda m: ShardedOptimizer(list(m.parameters()), m)),
    "strangers": (ShapeError, r"of shape \(3, 2, 3, 3\) is none of the", lambda m: ShardedOptimizer(sgd(network()), m)),
    "twice": (StateError, "one already", lambda m: [ShardedOptimizer(sgd(m), m) for _ in range(2)]),
    "groups": (
        StateError,
        "add the group before",
        lambda m: ShardedOptimizer(sgd(m), m).add_param_group({"params": []}),
    ),
}


@pytest.mark.parametrize("error, message, call", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(error, message, call):
    for found in outcomes(lambda world: call(DataParallel(network(), world)), 2):
        with pytest.raises(error, match="ShardedOptimizer: .*" + message):
            raise found
