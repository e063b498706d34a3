"""DataParallel: what a loop must not do, and that the model is as good as new afterwards."""

import pytest

from minigrad import Tensor, device
from minigrad.core.errors import ShapeError, StateError
from minigrad.parallel import CommunicationError

from .parallel_models import X, branches, grads, rows
from .parallel_runs import on_ranks


def refused(error, message, call):
    with pytest.raises(error, match=message):
        call()


def test_a_second_pass_wants_no_sync():
    def run(world, shards):
        model = branches(world, shards=shards)
        with pytest.raises(
            StateError, match=r"averaged already; put all passes of a shard but the last one under model"
        ):
            for (x,) in model.shards((Tensor(X),)):
                model(x, [0]).backward()
                model(x, [0]).backward() if x.shape[0] else None
        return usable(model)

    def twice(world):
        model = branches(world)
        loss = model(rows(world), [0])
        loss.backward(retain_graph=True)
        refused(StateError, "averaged already", loss.backward)
        return usable(model)

    assert on_ranks(run, 2, 2) == [True] * 2
    assert on_ranks(twice, 2) == [True] * 2


def usable(model):
    """Whether an update gives what it gives in a new model."""
    found = []
    for one in (model, branches(model.world, shards=model.sampler.shards)):
        for (x,) in one.shards((Tensor(X),)):
            one(x, range(4)).backward()
        found.append([g.tobytes() for g in grads(one)])
    return found[0] == found[1]


def test_gradients_with_gradients_are_refused():
    def run(world):
        model = branches(world)
        out = model(rows(world), [0])
        loss = out * out
        refused(StateError, "use minigrad.grad on the module inside", lambda: loss.backward(create_graph=True))
        model.zero_grad()
        return usable(model)

    assert on_ranks(run, 2) == [True] * 2


@pytest.mark.parametrize("size", [1, 2])
def test_several_shards_want_their_loop(size):
    def run(world):
        model = branches(world, shards=4)
        refused(StateError, r"of 4 shards; loop over them: for images", lambda: model(Tensor(X), [0]))
        model.eval()
        loss = model(Tensor(X), [0])  # to evaluate it is right
        refused(StateError, r"backward outside of a loop over model.shards\(batch\)", loss.backward)
        model.train()
        other = branches(world, shards=4 * size).sampler.cut(Tensor(X))
        refused(ShapeError, "wanted this rank's", lambda: next(model.shards(other)) if size > 1 else _short(model))
        refused(ShapeError, r"\[2, 4\] rows, wanted one number", lambda: next(model.shards((Tensor(X), Tensor(X[:2])))))
        return usable(model)

    assert on_ranks(run, size) == [True] * size


def _short(model):
    batch = model.sampler.cut(Tensor(X))
    del batch[0]
    next(model.shards(batch))


def test_a_list_of_tensors_is_a_batch_and_not_its_shards():
    def run(world):
        model = branches(world, shards=4)
        return [part.shape for pair in model.shards([Tensor(X), Tensor(X)]) for part in pair]

    assert on_ranks(run, 2) == [[(1, 5)] * 4] * 2


@pytest.mark.parametrize("shards", [2, 4])
def test_after_an_exception_in_the_loop_the_model_is_as_good_as_new(shards):
    def run(world):
        model = branches(world, shards=shards)
        before = device.generator().step
        for moment in ("forward", "backward", "after", "break"):
            try:
                for (x,) in model.shards((Tensor(X),)):
                    loss = model(x, range(4))
                    if moment == "forward":
                        raise InterruptedError
                    if moment == "backward":  # some buckets are under way then
                        fail = model.module.branches[0].weight.register_hook(_interrupt)
                        try:
                            loss.backward()
                        finally:
                            fail.remove()
                    loss.backward()
                    if moment == "after":
                        raise InterruptedError
                    break
            except InterruptedError:
                pass
            assert device.generator().step == before
            assert device.generator() is not None and usable(model)
            before = device.generator().step
        return True

    assert on_ranks(run, 2) == [True] * 2


def _interrupt(gradient):
    raise InterruptedError


def test_after_an_exception_in_a_plain_loop_too():
    def run(world):
        model = branches(world)
        fail = model.module.branches[0].weight.register_hook(_interrupt)
        with pytest.raises(InterruptedError):
            model(rows(world), range(4)).backward()
        fail.remove()
        model.zero_grad()
        model(rows(world), range(4)).backward()
        found, new = grads(model), branches(world)
        new(rows(world), range(4)).backward()
        return all(a.tobytes() == b.tobytes() for a, b in zip(found, grads(new), strict=True))

    assert on_ranks(run, 2) == [True] * 2


def test_what_fails_beside_backward_ends_it_with_the_bucket_named():
    def run(world):
        model = branches(world)
        if world.rank == 1:
            raise KeyError("gone")
        with pytest.raises(CommunicationError, match=r"label=bucket 0 of 8.*rank 1 ended: KeyError"):
            model(rows(world), range(4)).backward()

    with pytest.raises(KeyError):
        on_ranks(run, 2)
