"""DataParallel: averages with the bits of one process, when buckets leave, buffers, state, and after mistakes.

What it refuses besides stands in test_refused.py.
"""

import contextlib
from functools import partial

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, device, nn
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.parallel import DataParallel
from minigrad.parallel.buckets import bucket_bounds, bucket_bytes
from tests.parallel.parallel_runs import Wide, X, bits, branches, grads, in_pairs, on_ranks, plain, rows

BATCH = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)

# ---- gradients -------------------------------------------------------------------------------------------------------


def odd():
    """A frozen layer, one that is used twice, and one of another type."""
    minigrad.manual_seed(2)
    frozen, shared = nn.Linear(5, 5).requires_grad_(False), nn.Linear(5, 5)
    return nn.Sequential(frozen, shared, nn.Tanh(), shared, nn.Tanh(), Wide(5, 2, dtype="float64"))


def backward(model, x):
    out = model(x)
    (out * out).sum().backward()


def averaged(build, shards, count):
    """What one process finds with two passes over each shard: the sums of the shards, added in pairs, over N."""
    model, terms = build(), []
    for shard in range(shards):
        model.zero_grad()
        for _ in range(2):
            backward(model, Tensor(BATCH[shard * count // shards : (shard + 1) * count // shards]))
        terms.append([p.grad.numpy() for p in model.parameters() if p.requires_grad])
    return [in_pairs(parts) * (1 / shards) for parts in zip(*terms, strict=True)]


def same(found, wanted):
    assert [g.tobytes() for g in found] == [g.tobytes() for g in wanted]


CUTS = [(1, 8, 8), (2, 2, 8), (4, 8, 8), (8, 8, 8), (2, 8, 5), (3, 6, 7)]  # with empty shards too


@pytest.mark.parametrize("build, ranks, shards, count", [*((plain, *cut) for cut in CUTS), (odd, 2, 4, 8)])
def test_gradients_have_the_bits_of_one_process_and_the_values_of_the_whole_batch(build, ranks, shards, count):
    def run(world):
        model = DataParallel(build(), world, shards=shards, bucket_bytes=50)
        for _ in range(2):  # the second update begins anew
            for (x,) in model.shards([Tensor(BATCH[:count])]):
                with model.no_sync():
                    backward(model, x)
                backward(model, x)
        assert all((p.grad is None) != p.requires_grad for p in model.parameters())
        return [g for g in grads(model) if g is not None]

    wanted = averaged(build, shards, count)
    for found in on_ranks(run, ranks):
        same(found, wanted)
    for a, b in zip(wanted, averaged(build, 1, count), strict=True):
        np.testing.assert_allclose(a * shards, b, rtol=1e-5, atol=1e-5)


def test_a_plain_loop_whose_gradients_keep_their_addresses():
    """Each rank has one shard. Inside of no_sync nothing crosses to another rank."""

    def run(world):
        model, x = DataParallel(plain(), world, bucket_bytes=100), Tensor(BATCH[4 * world.rank :][:4])
        seen = set()
        for step in range(3):
            model.eval().zero_grad(set_to_none=step != 1)  # gradients are averaged in evaluation too
            with model.no_sync():
                backward(model, x)
            own = model.module[0].bias.grad.numpy().tobytes()
            backward(model, x)
            seen.add(tuple(p.grad.array.ctypes.data for p in model.parameters()))
        assert len(model.timeline) > 1 and len(seen) == 1
        return own, grads(model)

    (first, found), (second, other) = on_ranks(run, 2)
    assert first != second
    for got in (found, other):
        same(got, averaged(plain, 2, 8))


# ---- where gradients are cut into buckets, and when these leave ------------------------------------------------------

BOUNDS = [  # bytes of the gradients, of the first bucket, of the others; where buckets begin and end
    ([4, 3, 3], 10, 30, [(0, 3)]),  # all of it fits into the first
    ([10] * 10, 10, 30, [(0, 1), (1, 4), (4, 7), (7, 9), (9, 10)]),
    ([1, 100, 1, 1], 2, 5, [(0, 2), (2, 4)]),  # one larger than a bucket takes what came before along
    ([10] * 4, None, 20, [(0, 2), (2, 4)]),  # a small bucket makes small ends
    ([100_000] * 10, None, None, [(0, 10)]),
]


def test_cuts():
    for sizes, first, bucket, bounds in BOUNDS:
        assert bucket_bounds(sizes, first, bucket) == bounds
    assert [bucket_bytes(total * 10**6) for total in (0, 8, 80, 1000)] == [10**6, 10**6, 10**7, 25 * 10**6]


def test_the_first_bucket_leaves_while_backward_of_the_last_shard_goes_on():
    def run(world):
        events, send = [], world.all_reduce

        def sending(array, label, asynchronous):
            events.append(label)
            return send(array, label=label, asynchronous=asynchronous)

        def watch(layer, inputs, out):
            out.register_hook(lambda g: events.append("layer"))

        world.all_reduce = sending
        minigrad.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 6, bias=False), nn.Tanh(), nn.Linear(6, 3, bias=False))
        model = DataParallel(model, world, shards=4, bucket_bytes=80)
        model.module[0].register_forward_hook(watch)
        for (x,) in model.shards((Tensor(X),)):
            model(x).sum().backward()
            events.append("end")
        return events

    wanted = ["layer", "end", "bucket 0 of 2, model 1", "layer", "bucket 1 of 2, model 1", "end"]
    assert on_ranks(run, 2) == [wanted] * 2


def test_buckets_leave_in_one_order_whatever_the_order_of_gradients():
    def run(world):
        model, came = branches(world), []
        for number, layer in enumerate(model.module.branches):
            layer.weight.register_post_accumulate_grad_hook(lambda p, number=number: came.append(number))
        model(Tensor(X), [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]][world.rank]).backward()
        return came, grads(model), model.timeline

    found = on_ranks(run, 3)
    assert len({tuple(came) for came, *_ in found}) == 3
    for _, got, timeline in found:
        for gradient, whole in zip(got, WHOLE, strict=True):
            np.testing.assert_allclose(gradient, whole, rtol=1e-5, atol=1e-5)
        assert [(e["bucket"], e["bytes"]) for e in timeline] == [(b, (8, 40)[b % 2]) for b in range(8)]
        assert all(0 <= e["ready"] < e["done"] < 20 for e in timeline)
        assert [e["ready"] for e in timeline] == sorted(e["ready"] for e in timeline)


def test_parameters_that_are_not_used():
    """Branch 0 on all, 1 on rank 0, 2 on rank 1, 3 on none."""

    def run(world):
        model = branches(world, shards=4)
        for _ in range(2):
            for (x,) in model.shards((Tensor(X),)):
                model(x, [0, 1 + world.rank]).backward()
        return grads(model)[::2]

    for first, second, third, fourth in on_ranks(run, 2):
        for weight, of in ((first, X), (second, X[:2]), (third, X[2:]), (fourth, X[:0])):
            np.testing.assert_allclose(weight, np.stack([of.sum(0) / 4] * 2), rtol=1e-5, atol=1e-6)


# ---- buffers and state -----------------------------------------------------------------------------------------------


def test_all_start_from_rank_0_and_a_state_comes_back(tmp_path):
    def run(world):
        model = nn.Sequential(plain(), nn.BatchNorm1d(3))
        model[1].running_mean.array[:] = model[0][0].bias.array[:3] = world.rank
        before = bits(model)
        wrapped = DataParallel(model, world)
        assert list(wrapped.state_dict()) == list(before) == list(model.state_dict())
        checkpoint.save(tmp_path / str(world.rank), wrapped)  # by rank 0 alone
        first = bits(wrapped)
        wrapped.load_state_dict({name: tensor.numpy() * 2 for name, tensor in wrapped.state_dict().items()})
        return before, first, model[0][4].weight.detach().numpy()

    (mine, first, weight), (other, second, _) = on_ranks(run, 2)
    assert mine == first == second != other
    assert np.array_equal(weight, plain()[4].weight.detach().numpy() * 2)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_buffers_are_those_of_shard_0_and_as_before_after_an_exception_in_the_loop(size):
    def run(world):
        model, found = DataParallel(nn.BatchNorm1d(5), world, shards=4), []
        for wrong in (False, False, size < 4):
            with pytest.raises(KeyError) if wrong else contextlib.nullcontext():
                for number, (x,) in enumerate(model.shards((Tensor(BATCH),))):
                    model(x).sum().backward()
                    if wrong and number:
                        raise KeyError
            found.append(bits(model))
        return found

    alone, wanted = nn.BatchNorm1d(5), []
    for _ in range(3):
        alone(Tensor(BATCH[:2]))
        wanted.append(bits(alone))
    assert on_ranks(run, size) == [wanted if size == 4 else [*wanted[:2], wanted[1]]] * size


def test_one_shard_is_the_batch():
    (model,) = on_ranks(lambda world: DataParallel(nn.Linear(X.shape[1], 3), world), 1)
    assert [x.tolist() for (x,) in model.shards((Tensor(X),))] == [X.tolist()]


# ---- mistakes of a loop, and exceptions ------------------------------------------------------------------------------


WHOLE = [np.stack([X.sum(0)] * 2), np.full(2, 4.0)] * 4  # the gradients of all branches for all rows


def usable(model):
    """Whether an update gives the averages, in a plain loop too where a rank has one shard."""
    for (x,) in model.shards((Tensor(X),)):
        model(x, range(4)).backward()
    found, shards = [grads(model)], model.sampler.shards
    if len(model.sampler) == 1:
        model.zero_grad()
        model.train()(rows(model.world), range(4)).backward()
        found.append(grads(model))
    pairs = [pair for gradients in found for pair in zip(gradients, WHOLE, strict=True)]
    return all(np.allclose(gradient * shards, whole, 1e-5, 1e-5) for gradient, whole in pairs)


def twice_in_a_shard(model):
    for (x,) in model.shards((Tensor(X),)):
        model(x, [0]).backward()
        model(x, [0]).backward()


def with_a_graph(model):
    out = model(rows(model.world), [0])
    (out * out).backward(create_graph=True)


def outside_of_the_loop(model):
    model.eval()(Tensor(X), [0]).backward()  # the forward pass alone is right


def nested(model):
    for _ in model.shards((Tensor(X),)):
        list(model.shards((Tensor(X),)))


def left(moment, model):
    """An update that ends at a moment of its first shard."""

    def interrupt(now):
        if moment == now:
            raise InterruptedError

    # The last gradient fails, with buckets under way.
    fail = model.module.branches[0].weight.register_hook(lambda g: interrupt("backward"))
    try:
        for (x,) in model.shards((Tensor(X),)):
            loss = model(x, range(4))
            interrupt("forward")
            loss.backward()
            interrupt("after")
            break
        interrupt("break")
    finally:
        fail.remove()


def left_in_a_plain_loop(model):
    fail = model.module.branches[0].weight.register_hook(lambda g: 1 / 0)
    try:
        model(rows(model.world), range(4)).backward()
    finally:
        fail.remove()


MISTAKES = [  # shards of two ranks, what is said, what is done
    (2, StateError, "averaged already; put all passes of a shard but the last one under model", twice_in_a_shard),
    (2, StateError, "use minigrad.grad on the module inside", with_a_graph),
    (2, StateError, "loops over shards do not nest", nested),
    (2, ShapeError, r"\[2, 4\] rows, wanted one number", lambda model: next(model.shards((Tensor(X), Tensor(X[:2]))))),
    (2, KindError, "batch is a Tensor, wanted Shards or a tuple", lambda model: next(model.shards(Tensor(X)))),
    (4, StateError, r"of 4 shards; loop over them: for images", lambda model: model(Tensor(X), [0])),
    (4, StateError, r"backward outside of a loop over model.shards\(batch\)", outside_of_the_loop),
    *((4, InterruptedError, None, partial(left, moment)) for moment in ("forward", "backward", "after", "break")),
    (2, InterruptedError, None, partial(left, "backward")),
    (2, ZeroDivisionError, None, left_in_a_plain_loop),
]


@pytest.mark.parametrize("shards, error, message, act", MISTAKES)
def test_after_a_mistake_or_an_exception_the_model_is_as_good_as_new(shards, error, message, act):
    def run(world):
        model, before = branches(world, shards=shards), device.generator().step
        with pytest.raises(error, match=message):
            act(model)
        return device.generator().step == before + (act in (with_a_graph, left_in_a_plain_loop)) and usable(model)

    assert on_ranks(run, 2) == [True] * 2
