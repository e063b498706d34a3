"""DataParallel in unusual hands: frozen layers, two models, wrapped again, other random numbers, exceptions."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, optim, parallel
from minigrad.core.errors import StateError
from minigrad.parallel import CommunicationError, DataParallel, DisagreementError, SyncBatchNorm
from tests.parallel_runs import bits, on_ranks, outcomes

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def layer():
    minigrad.manual_seed(0)
    return nn.Linear(4, 3)


def test_training_in_evaluation_mode():
    def run(world):
        model = DataParallel(layer(), world).eval()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(Tensor(X[world.rank :: 2])).sum().backward()
            optimizer.step()
        return bits(model)

    assert len({str(found) for found in on_ranks(run, 2)}) == 1


def test_a_parameter_that_is_thawed_wants_a_new_wrapping():
    def run(world):
        inner = layer()
        inner.bias.requires_grad_(False)
        model = DataParallel(inner, world)
        inner.bias.requires_grad_()
        with pytest.raises(StateError, match="module.bias|bias requires a gradient now"):
            model(Tensor(X))
        again = DataParallel(inner, world)
        again(Tensor(X[world.rank :: 2])).sum().backward()
        with pytest.raises(StateError, match="was wrapped again since"):
            model(Tensor(X))
        return again.module.bias.grad.tolist()

    assert on_ranks(run, 2) == [[4.0] * 3] * 2


def test_gradients_of_two_models_do_not_mix():
    def run(world):
        models = [DataParallel(layer(), world) for _ in range(2)]
        losses = [model(Tensor(X)).sum() * (1 + 99 * number) for number, model in enumerate(models)]
        for loss in losses[:: 1 - 2 * world.rank]:  # another order on the second rank
            loss.backward()

    for found in outcomes(run, 2):
        assert isinstance(found, CommunicationError) and "model 1" in str(found) and "model 2" in str(found)


def test_ranks_with_other_random_numbers_are_refused():
    def run(world):
        minigrad.manual_seed(world.rank)
        DataParallel(nn.Linear(4, 3), world)

    for found in outcomes(run, 2):
        assert isinstance(found, DisagreementError) and "the state of random numbers" in str(found)


def test_a_batch_that_leaves_a_rank_without_statistics():
    def run(world):
        model = DataParallel(nn.Sequential(nn.Linear(4, 3), SyncBatchNorm(3, world=world)), world)
        with pytest.raises(StateError, match="a batch of 1 leaves some of 2 shards empty"):
            list(model.shards((Tensor(X[:1]), Tensor(np.zeros(1, np.int64)))))

    on_ranks(run, 2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_exception_in_the_loop_leaves_buffers_as_they_were(ranks):
    def run(world):
        model = DataParallel(nn.BatchNorm1d(4), world, shards=4)
        before = model.module.running_mean.tolist()
        batch = Tensor(X), Tensor(np.zeros(8, np.int64))
        with pytest.raises(KeyError):
            for number, (images, _) in enumerate(model.shards(batch)):
                model(images)
                if number == 1:
                    raise KeyError
        return before == model.module.running_mean.tolist()

    assert on_ranks(run, ranks) == [True] * ranks


def test_gradients_that_the_model_forgot_are_not_applied():
    def run(world):
        model = DataParallel(layer(), world)
        optimizer = parallel.ShardedOptimizer(optim.SGD(model.parameters(), lr=0.1), model)
        model(Tensor(X)).sum().backward()
        model.zero_grad()
        before = bits(model)
        optimizer.step()
        return before == bits(model)

    assert on_ranks(run, 2) == [True, True]


def test_half_a_call_ends_communication():
    """Otherwise the next call would take the messages of this one."""

    def run(world):
        if world.rank == 0:
            take, world.transport.take = world.transport.take, lambda *arguments: 1 / 0
            with pytest.raises(ZeroDivisionError):
                world.all_reduce(np.ones(3))
            world.transport.take = take
        else:
            world.all_reduce(np.ones(3))  # what rank 0 had sent may be here before it failed
        world.all_reduce(np.ones(3))

    for found in outcomes(run, 2):
        assert isinstance(found, CommunicationError) and "rank 0: ZeroDivisionError" in str(found)


def test_a_stage_that_fails_ends_the_pipeline():
    def run(world):
        pipe = parallel.Pipeline(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), world, microbatches=4)
        broken = lambda outputs, targets: 1 / 0
        with pytest.raises((ZeroDivisionError, CommunicationError)):
            pipe.train_step(Tensor(X), Tensor(np.zeros(8, np.int64)), broken)
        pipe.train_step(Tensor(X), Tensor(np.zeros(8, np.int64)))

    for found in outcomes(run, 2):
        assert isinstance(found, CommunicationError) and "ZeroDivisionError" in str(found)


def test_a_message_of_another_shape_is_told_to_its_sender():
    def run(world):
        if world.rank == 0:
            world.send(np.ones(3), 1).wait()
            world.barrier()
        else:
            world.recv(np.ones(4), 0)

    for found in outcomes(run, 2):
        assert "rank 0 sent float64(3,), but out on rank 1 is float64(4,)" in str(found)


def test_loops_over_shards_do_not_nest():
    def run(world):
        model, batch = DataParallel(layer(), world), (Tensor(X), Tensor(np.zeros(8, np.int64)))
        with pytest.raises(StateError, match="loops over shards do not nest"):
            for _ in model.shards(batch):
                list(model.shards(batch))

    on_ranks(run, 2)


def test_copies_and_pickles_are_refused():
    import copy
    import pickle

    model = DataParallel(layer())
    for act in (copy.deepcopy, pickle.dumps):
        with pytest.raises(StateError, match=r"\.module|state_dict"):
            act(model)
    assert bits(copy.deepcopy(model.module)) == bits(model)


@pytest.mark.parametrize("other", ["lr", "epochs", "seed"])
def test_fit_with_other_options_on_a_rank_is_refused(other):
    from minigrad import data
    from minigrad.train import fit
    from tests.small_training import images, network

    def run(world):
        differs = world.rank == 1
        model = DataParallel(network(), world)
        optimizer = optim.SGD(model.parameters(), lr=0.2 if differs and other == "lr" else 0.1)
        seed = int(differs and other == "seed")
        loader = data.Loader(images(), 8, shuffle=True, seed=seed, sampler=model.sampler)
        fit(model, loader, optimizer, 2 if differs and other == "epochs" else 1)

    for found in outcomes(run, 2):
        assert isinstance(found, DisagreementError) and str(found).startswith("fit: "), found


def test_checkpoints_of_a_model_on_ranks_are_written_by_rank_0(tmp_path):
    from minigrad import checkpoint

    def run(world):
        model = DataParallel(layer(), world)
        checkpoint.save(tmp_path / str(world.rank), model)
        world.barrier()

    on_ranks(run, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
