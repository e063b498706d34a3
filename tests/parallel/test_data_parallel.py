"""DataParallel: averages with the bits of one process, when buckets leave, which parameters, buffers and state."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, checkpoint, data, nn, optim
from minigrad.nn import functional as F
from minigrad.parallel import DataParallel, ShardedOptimizer
from tests.parallel_runs import bits, on_ranks
from tests.small_training import images

from .parallel_models import Branches, X, branches, grads, normalised, plain, rows

BATCH = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
LABELS = np.arange(8) % 3


def same(found, wanted):
    assert [g if g is None else g.tobytes() for g in found] == [g if g is None else g.tobytes() for g in wanted]


def trained(world, shards, bucket_bytes=None, whole_gradients=None):
    """The bits after two epochs whose last batch has one image, and leaves all shards but one empty."""
    model = DataParallel(normalised(), world, shards=shards, bucket_bytes=bucket_bytes)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    if whole_gradients is not None:
        optimizer = ShardedOptimizer(optimizer, model, whole_gradients)
    loader = data.Loader(images(43), 21, True, transform=data.PadCrop(1), prefetch=0, sampler=model.sampler)
    for batch in [*loader, *loader]:
        optimizer.zero_grad()
        for x, y in model.shards(batch):
            (F.cross_entropy(model(x), y) * (len(y) * shards / batch.total)).backward()
        optimizer.step()
    return bits(model, optimizer)


RUNS = [(1, 8, 300), (2, 8, None), (2, 8, 300, True), (4, 8, None, False), (8, 8, 300), (8, 8, 300, False)]


@pytest.mark.parametrize("shards, runs", [(8, RUNS), (6, [(3, 6), (6, 6, 300)])])
def test_one_set_of_bits_on_any_number_of_ranks(shards, runs):
    (wanted,) = on_ranks(trained, 1, shards)
    for size, *options in runs:
        assert on_ranks(trained, size, *options) == [wanted] * size, (size, options)


# ---- gradients -------------------------------------------------------------------------------------------------------


def averaged(shards):
    """What one process finds with two passes over each shard: the sums of the shards, added in pairs, over N."""
    model, size, terms = plain(), len(BATCH) // shards, []
    for start in range(0, len(BATCH), size):
        part = slice(start, start + size)
        model.zero_grad()
        for _ in range(2):
            F.cross_entropy(model(Tensor(BATCH[part])), Tensor(LABELS[part])).backward()
        terms.append(grads(model))
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=True)
        terms = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
    return [g * np.float32(1 / shards) for g in terms[0]]


@pytest.mark.parametrize("ranks, shards", [(1, 1), (1, 8), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8)])
def test_gradients_have_the_bits_of_one_process_and_the_values_of_the_whole_batch(ranks, shards):
    def run(world):
        model = DataParallel(plain(), world, shards=shards, bucket_bytes=100)
        for _ in range(2):  # the second update begins anew
            for x, y in model.shards([Tensor(BATCH), Tensor(LABELS)]):
                with model.no_sync():
                    F.cross_entropy(model(x), y).backward()
                F.cross_entropy(model(x), y).backward()
        return grads(model)

    for found in on_ranks(run, ranks):
        same(found, averaged(shards))
    for found, wanted in zip(averaged(shards), averaged(1), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_a_plain_loop_whose_gradients_keep_their_addresses(place):
    """Each rank has one shard. Inside of no_sync nothing crosses to another rank; .grad are views of the buckets."""

    def run(world):
        model = DataParallel(plain().to(place), world, bucket_bytes=100)
        x, y = (Tensor(a[4 * world.rank :][:4]).to(place) for a in (BATCH, LABELS))
        seen, buckets = set(), [bucket.array for bucket in model.reducer.buckets]
        for step in range(3):
            model.zero_grad(set_to_none=step != 1)
            with model.no_sync():
                F.cross_entropy(model(x), y).backward()
            own = model.module[0].bias.grad.numpy().tobytes()
            F.cross_entropy(model(x), y).backward()
            seen.add(tuple(id(p.grad.data) for p in model.parameters()))
            assert all(any(np.shares_memory(p.grad.data, a) for a in buckets) for p in model.parameters())
        assert len(buckets) > 1 and len(seen) == 1
        return own, grads(model)

    (first, found), (second, other) = on_ranks(run, 2)
    assert first != second
    same(found, other)
    for a, b in zip(found, averaged(2), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    if place == "cpu":
        same(found, averaged(2))


def test_each_shard_of_each_update_has_masks_of_its_own_in_any_loop():
    def run(world, loop):
        minigrad.manual_seed(6)
        model, seen = DataParallel(nn.Sequential(nn.Linear(5, 64), nn.Dropout(0.5)), world, shards=2), []
        for _ in range(2):
            parts = model.shards((Tensor(BATCH[:2]),)) if loop else [(Tensor(BATCH[world.rank : world.rank + 1]),)]
            for (x,) in parts:
                seen.append(model(x))
                seen[-1].sum().backward()
        return [tuple(bool(value) for value in out.detach().numpy()[0]) for out in seen]

    (masks,) = on_ranks(run, 1, True)
    assert len(set(masks)) == 4
    for loop in (True, False):
        assert on_ranks(run, 2, loop) == [masks[::2], masks[1::2]]


def test_alone_it_is_the_model_itself():
    def run(world):
        model, other = DataParallel(normalised(), world), normalised()
        assert model.reducer is None and model.timeline == [] and not any(p.ready_hooks for p in model.parameters())
        x, y = Tensor(images(6).images.astype(np.float32)), Tensor(images(6).labels)
        found = []
        for one in (model, other):
            minigrad.manual_seed(8)
            with model.no_sync():
                F.cross_entropy(one(x), y).backward()
            found.append((bits(one), [g.tobytes() for g in grads(one)]))
        assert found[0] == found[1]
        ((part, _),) = model.shards((x, y))
        assert part.tolist() == x.tolist() and all(p.grad is None for p in model.parameters())

    on_ranks(run, 1)


# ---- when buckets leave ----------------------------------------------------------------------------------------------


def watched(world):
    """The labels of what is sent, in a list that grows."""
    events, send = [], world.all_reduce

    def all_reduce(array, *arguments, **options):
        events.append(options.get("label"))
        return send(array, *arguments, **options)

    world.all_reduce = all_reduce
    return events


@pytest.mark.parametrize("shards", [2, 4])
def test_the_first_bucket_leaves_while_backward_goes_on(shards):
    def run(world):
        events = watched(world)
        minigrad.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 6, bias=False), nn.Tanh(), nn.Linear(6, 3, bias=False))
        model = DataParallel(model, world, shards=shards, bucket_bytes=80)

        def watch(layer, inputs, out):
            out.register_hook(lambda g: events.append("layer"))

        model.module[0].register_forward_hook(watch)
        for (x,) in model.shards((Tensor(X),)):
            model(x).sum().backward()
            events.append("end")
        return events

    before = ["layer", "end"] * (shards // 2 - 1)  # only the last shard of a rank sends
    assert on_ranks(run, 2) == [[*before, "bucket 0 of 2, model 1", "layer", "bucket 1 of 2, model 1", "end"]] * 2


def test_buckets_leave_in_one_order_whatever_the_order_of_gradients():
    def run(world):
        events, came = watched(world), []
        model = branches(world)
        for number, layer in enumerate(model.module.branches):
            layer.weight.register_post_accumulate_grad_hook(lambda p, number=number: came.append(number))
        model(Tensor(X), [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]][world.rank]).backward()
        return came, events, grads(model), model.timeline

    found = on_ranks(run, 3)
    assert len({tuple(came) for came, *_ in found}) == 3
    alone = Branches()
    alone(Tensor(X), [0]).backward()
    for _, events, got, timeline in found:
        assert events == [f"bucket {b} of 8, model 1" for b in range(8)]
        for i, g in enumerate(got):
            np.testing.assert_allclose(g, grads(alone)[i % 2], rtol=1e-6)
        assert [(e["bucket"], e["bytes"]) for e in timeline] == [(b, (12, 48)[b % 2]) for b in range(8)]
        assert all(0 <= e["ready"] < e["done"] < 20 for e in timeline)
        assert [e["ready"] for e in timeline] == sorted(e["ready"] for e in timeline)


# ---- which parameters ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("find", [False, True])
def test_parameters_that_are_not_used(find, shards):
    """Branch 0 on all, 1 on rank 0, 2 on rank 1, 3 on none."""

    def run(world):
        model = branches(world, shards=shards, find_unused_parameters=find)
        for _ in range(2):
            for (x,) in model.shards((Tensor(X),)):
                model(x, [0, 1 + world.rank]).backward()
        return grads(model)

    for found in on_ranks(run, 2):
        weights = found[::2]
        halves = [X[:2].sum(0), X[2:].sum(0)]
        for weight, wanted in zip(weights, [sum(halves), *halves], strict=False):
            np.testing.assert_allclose(weight, np.stack([wanted / shards] * 2), rtol=1e-5, atol=1e-6)
        assert found[6:] == [None, None] if find else not np.any(weights[3])


class Odd(nn.Module):
    """A frozen layer, one that is used twice, and one of another type."""

    def __init__(self):
        super().__init__()
        self.frozen, self.first = nn.Linear(5, 5).requires_grad_(False), nn.Linear(5, 5)
        self.second = nn.Linear(5, 5)
        self.second.weight = self.first.weight
        self.wide = nn.Linear(5, 2).to("float64")

    def forward(self, x):
        return self.wide(self.second(self.first(self.frozen(x)).tanh()).tanh().to("float64")).sum()


@pytest.mark.parametrize("bucket_bytes", [None, 50])
def test_frozen_and_shared_parameters_and_other_types_also_in_evaluation(bucket_bytes):
    def build():
        minigrad.manual_seed(2)
        return Odd().eval()

    alone = build()
    for part in (X[:2], X[2:]):
        (alone(Tensor(part)) * 0.5).backward()

    def run(world):
        model = DataParallel(build(), world, bucket_bytes=bucket_bytes).eval()
        model(rows(world)).backward()
        assert model.module.first.weight.grad is model.module.second.weight.grad
        assert {bucket.array.dtype.name for bucket in model.reducer.buckets} == {"float32", "float64"}
        return grads(model)

    assert [g is None for g in grads(alone)] == [True] * 2 + [False] * 5
    for found in on_ranks(run, 2):
        same(found, grads(alone))


# ---- buffers and state -----------------------------------------------------------------------------------------------


def test_all_start_from_rank_0_and_a_state_comes_back(tmp_path):
    def run(world):
        model = normalised()
        model[1].running_mean.data[:] = model[0].bias.data[:] = world.rank
        before = bits(model)
        wrapped = DataParallel(model, world)
        assert list(wrapped.state_dict()) == list(before) == list(model.state_dict())
        checkpoint.save(tmp_path / str(world.rank), wrapped)  # by rank 0 alone
        first = bits(wrapped)
        wrapped.load_state_dict({name: tensor.numpy() * 2 for name, tensor in wrapped.state_dict().items()})
        return before, first, model[5].weight.detach().numpy()

    (mine, first, weight), (other, second, _) = on_ranks(run, 2)
    assert mine == first == second != other
    assert np.array_equal(weight, normalised()[5].weight.detach().numpy() * 2)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_buffers_are_those_of_shard_0(size):
    x = Tensor(images(8).images.astype(np.float32) / 255)

    def run(world):
        minigrad.manual_seed(0)
        model = DataParallel(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(36, 1)), world, shards=4)
        for _ in range(3):
            for (part,) in model.shards((x,)):
                model(part).sum().backward()
        return bits(model.module[0])

    alone = nn.BatchNorm2d(1)
    for _ in range(3):
        alone(x[:2])
    wanted = {name: value for name, value in bits(alone).items() if name not in ("weight", "bias")}
    assert alone.num_batches_tracked.item() == 3
    for found in on_ranks(run, size):
        assert wanted.items() <= found.items()
