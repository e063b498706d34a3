"""DataParallel: one set of bits on any number of ranks, gradients that are averages. See test_parallel_data_*."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, device, nn, optim
from minigrad.nn import functional as F
from minigrad.parallel import DataParallel, ShardedOptimizer

from .parallel_models import normalised, plain
from .parallel_runs import bits, on_ranks
from .small_training import images

BATCH = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
LABELS = np.arange(8) % 3


def loss_of(model, part=slice(None), dtype="float32"):
    return F.cross_entropy(model(Tensor(BATCH[part].astype(dtype))), Tensor(LABELS[part]))


def share(world):
    """The part of the batch that belongs to a rank which has one shard."""
    each = len(BATCH) // world.size
    return slice(world.rank * each, (world.rank + 1) * each)


def gradients(model):
    return [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]


def same(found, wanted):
    assert [g.tobytes() for g in found] == [g.tobytes() for g in wanted]


OPTIMIZERS = {
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adam": lambda parameters: optim.Adam(parameters, lr=0.01),
}


def trained(world, kind, shards, bucket_bytes=None, whole_gradients=None):
    """The bits after two epochs whose last batch has one image, and leaves all shards but one empty."""
    model = DataParallel(normalised(), world, shards=shards, bucket_bytes=bucket_bytes)
    optimizer = OPTIMIZERS[kind](model.parameters())
    if whole_gradients is not None:
        optimizer = ShardedOptimizer(optimizer, model, whole_gradients)
    loader = data.Loader(images(43), 21, True, transform=data.PadCrop(1), prefetch=0, sampler=model.sampler)
    for batch in [*loader, *loader]:
        optimizer.zero_grad()
        for x, y in model.shards(batch):
            (F.cross_entropy(model(x), y) * (len(y) * shards / batch.total)).backward()
        optimizer.step()
    return bits(model, optimizer)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_one_set_of_bits_on_any_number_of_ranks(kind):
    (wanted,) = on_ranks(trained, 1, kind, 8)
    for size, *options in (
        (1, 300),
        (2, None),
        (2, 300, True),
        (4, None, False),
        (8, 300),
        (8, None, True),
        (8, 300, False),
    ):
        for found in on_ranks(trained, size, kind, 8, *options):
            assert found == wanted, (size, options)


def test_one_set_of_bits_for_shards_that_are_no_power_of_two():
    (wanted,) = on_ranks(trained, 1, "sgd", 6)
    assert on_ranks(trained, 3, "sgd", 6) == [wanted] * 3 and on_ranks(trained, 6, "sgd", 6, 300) == [wanted] * 6
    assert wanted != on_ranks(trained, 1, "sgd", 8)[0]


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_gradients_are_those_of_the_whole_batch_to_rounding(size):
    alone = plain("float64")
    loss_of(alone, dtype="float64").backward()

    def run(world, order):
        model = DataParallel(plain("float64"), world, order=order)
        loss_of(model, share(world), "float64").backward()
        return gradients(model)

    for found in [*on_ranks(run, size, "fixed"), *on_ranks(run, size, "native")]:
        for got, wanted in zip(found, gradients(alone), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-15)


def test_gradients_are_those_of_accumulation_bit_by_bit():
    alone = plain()
    for part in (slice(4), slice(4, 8)):
        (loss_of(alone, part) * 0.5).backward()

    def run(world):
        model = DataParallel(plain(), world)
        loss_of(model, share(world)).backward()
        return gradients(model)

    for found in on_ranks(run, 2):
        same(found, gradients(alone))


def test_gradients_are_views_that_keep_their_addresses():
    def run(world):
        model = DataParallel(plain(), world, bucket_bytes=100)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        arrays = [bucket.array for bucket in model.reducer.buckets]
        assert len(arrays) > 1 and sum(a.size for a in arrays) >= sum(p.numel() for p in model.parameters())
        seen = set()
        for step in range(3):
            optimizer.zero_grad(set_to_none=step != 1)
            loss_of(model, share(world)).backward()
            places = tuple(p.grad.array.__array_interface__["data"][0] for p in model.parameters())
            assert all(any(np.shares_memory(p.grad.array, a) for a in arrays) for p in model.parameters())
            seen.add(places)
            optimizer.step()
        return len(seen)

    assert on_ranks(run, 2) == [1, 1]


def test_several_passes_before_an_update():
    def in_plain_loop(world):
        model = DataParallel(plain(), world)
        for _ in range(2):
            model.zero_grad()
            with model.no_sync():
                loss_of(model, share(world)).backward()
                assert world.rank or gradients(model)[0].tobytes() == first.tobytes()
            loss_of(model, share(world)).backward()
        return gradients(model)

    def in_shards(world):
        model = DataParallel(plain(), world, shards=4)
        for _ in range(2):
            for x, y in model.shards((Tensor(BATCH), Tensor(LABELS))):
                with model.no_sync():
                    F.cross_entropy(model(x), y).backward()
                F.cross_entropy(model(x), y).backward()
        return gradients(model)

    alone, parts = plain(), {2: (slice(4), slice(4, 8)), 4: [slice(i, i + 2) for i in range(0, 8, 2)]}
    loss_of(alone, parts[2][0]).backward()
    first = gradients(alone)[0]
    wanted = {}
    for count, slices in parts.items():
        each = []
        for part in slices:
            alone.zero_grad()
            loss_of(alone, part).backward()
            loss_of(alone, part).backward()
            each.append(gradients(alone))
        totals = [[g.copy() for g in one] for one in each]
        while len(totals) > 1:
            totals = [
                [a + b for a, b in zip(*pair, strict=True)] for pair in zip(totals[::2], totals[1::2], strict=True)
            ]
        wanted[count] = [g * np.float32(1 / count) for g in totals[0]]
    for found in on_ranks(in_plain_loop, 2):
        same(found, wanted[2])
    for size in (1, 2, 4):
        for found in on_ranks(in_shards, size):
            same(found, wanted[4])


def test_each_shard_of_each_update_has_masks_of_its_own_in_any_loop():
    def run(world, loop):
        minigrad.manual_seed(6)
        model, seen = DataParallel(nn.Sequential(nn.Linear(5, 64), nn.Dropout(0.5)), world, shards=2), []
        for _ in range(2):
            if loop:
                for (x,) in model.shards((Tensor(BATCH[:2]),)):
                    seen.append(model(x))
                    seen[-1].sum().backward()
            else:
                seen.append(model(Tensor(BATCH[world.rank : world.rank + 1])))
                seen[-1].sum().backward()
        return [tuple(bool(value) for value in out.detach().numpy()[0]) for out in seen]

    (masks,) = on_ranks(run, 1, True)
    assert len(set(masks)) == 4
    for loop in (True, False):
        assert on_ranks(run, 2, loop) == [masks[::2], masks[1::2]]


@pytest.mark.parametrize("wire, epsilon", [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_gradients_by_a_narrow_wire_are_close(wire, epsilon):
    def run(world, wire):
        model = DataParallel(plain(), world, wire=wire)
        loss_of(model, share(world)).backward()
        return gradients(model)

    full, narrow, terms = on_ranks(run, 4, None)[0], on_ranks(run, 4, wire), []
    for rank in range(4):
        loss_of(alone := plain(), slice(2 * rank, 2 * rank + 2)).backward()
        terms.append([np.abs(g) for g in gradients(alone)])
    for found in narrow:
        same(found, narrow[0])
    assert any(a.tobytes() != b.tobytes() for a, b in zip(full, narrow[0], strict=True))
    for a, b, *sizes in zip(full, narrow[0], *terms, strict=True):
        # Each term is rounded, and perhaps the total; below its normal numbers float16 is off by 2^-25.
        assert (np.abs(a - b) <= 1.01 * epsilon * (sum(sizes) / 4 + np.abs(a)) + 2.0**-24).all()


def test_a_model_on_another_device():
    def run(world, place):
        minigrad.manual_seed(1)
        model = DataParallel(nn.Linear(5, 3).to(place), world, shards=4)
        for x, y in model.shards((Tensor(BATCH).to(place), Tensor(LABELS).to(place))):
            (model(x).sum() * (1.0 + y[0].item())).backward()
        assert all(p.grad.device == place for p in model.parameters())
        return [device.host(p.grad.array) for p in model.parameters()]

    here, there = on_ranks(run, 2, "cpu"), on_ranks(run, 2, "interpreter")
    same(there[1], there[0])
    for a, b in zip(here[0], there[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


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
            found.append((bits(one), [g.tobytes() for g in gradients(one)]))
        assert found[0] == found[1]
        ((x0, _),) = model.shards((x, y))
        assert x0.tolist() == x.tolist() and all(p.grad is None for p in model.parameters())

    on_ranks(run, 1)
