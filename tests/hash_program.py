"""Trainings whose bits must not depend on who shares the work: rank 0 prints a line for each.

python -m tests.hash_program [cases|pipeline|norm]
"""

import hashlib
import sys

import numpy as np

import minigrad
from minigrad import Tensor, checkpoint, data, nn, optim, parallel
from minigrad.nn import functional
from minigrad.train import fit

SHARDS = 8
CASES = {  # name: (optimiser, bytes of a bucket, how its state is divided)
    "sgd": ("sgd", None, None),
    "sgd, small buckets, divided": ("sgd", 1000, "scattered"),
    "adam, small buckets": ("adam", 1000, None),
    "adam, divided": ("adam", None, "scattered"),
    "adam, divided, whole gradients": ("adam", 4000, "whole"),
}


def network():
    minigrad.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(8 * 16, 10),
    )  # fmt: skip


def trained(world, kind, bucket_bytes, divided):
    """The hash of weights, buffers, the optimiser's state and the losses after two short epochs."""
    train, test = data.digits()
    model = parallel.DataParallel(network(), world, shards=SHARDS, bucket_bytes=bucket_bytes)
    options = {"transform": data.PadCrop(1), "sampler": model.sampler}
    loader = data.Loader(train.subset(slice(100)), 32, shuffle=True, **options)  # the last batch is of 4 images
    kinds = {"sgd": (optim.SGD, {"lr": 0.05, "momentum": 0.9}), "adam": (optim.Adam, {"lr": 3e-3})}
    make, settings = kinds[kind]
    optimizer = make(model.parameters(), **settings)
    if divided:
        optimizer = parallel.ShardedOptimizer(optimizer, model, whole_gradients=divided == "whole")
    history = fit(model, loader, optimizer, 2, test=data.Loader(test.subset(slice(60)), 16))
    digest = hashlib.sha256(checkpoint.weights_hash(model).encode())
    for _, entries in sorted(optimizer.state_dict()["state"].items()):
        for name, value in sorted(entries.items()):
            digest.update(name.encode() + (value.tobytes() if hasattr(value, "tobytes") else str(value).encode()))
    figures = [history[name] for name in ("loss", "accuracy", "test_loss", "test_accuracy")]
    return hashlib.sha256(digest.digest() + repr(figures).encode()).hexdigest()


def cases(world):
    return [f"{name}: {trained(world, *case)}" for name, case in CASES.items()]


# ---- pipelines -------------------------------------------------------------------------------------------------------

BATCH, MICROBATCHES = 24, 4  # of each replica


def layers():
    minigrad.manual_seed(2)
    widths = [12, 20, 16, 16, 5]
    parts = [part for a, b in zip(widths, widths[1:], strict=False) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*parts[:-1])


def batch(replicas):
    random = np.random.default_rng(0)
    shape = replicas * BATCH, 12
    return Tensor(random.standard_normal(shape).astype(np.float32)), Tensor(random.integers(0, 5, shape[0]))


def unsplit(replicas):
    """The gradients of one model: of each replica's batch in microbatches, one after another, then the mean."""
    images, labels = batch(replicas)
    size, sums = BATCH // MICROBATCHES, []
    for replica in range(replicas):
        model = layers()
        for number in range(MICROBATCHES):
            part = slice(replica * BATCH + number * size, replica * BATCH + (number + 1) * size)
            (functional.cross_entropy(model(images[part]), labels[part]) / MICROBATCHES).backward()
        sums.append([parameter.grad.numpy() for parameter in model.parameters()])
    return [sum(terms[1:], terms[0]) / np.float32(replicas) for terms in zip(*sums, strict=True)]


def pipeline(world):
    """Whether 2 stages of as many replicas as there are ranks for have the gradients of the unsplit model."""
    lines, stages = [], 2
    wanted = unsplit(world.size // stages)
    names = [name for name, _ in layers().named_parameters()]
    for schedule in ("gpipe", "1f1b"):
        pipe = parallel.Pipeline(layers(), world, MICROBATCHES, schedule, stages=stages)
        images, labels = batch(world.size // stages)
        own = slice(pipe.replica * BATCH, (pipe.replica + 1) * BATCH)
        pipe.train_step(images[own], labels[own], functional.cross_entropy)
        equal = all(
            parameter.grad.numpy().tobytes() == wanted[names.index(name)].tobytes()
            for name, parameter in pipe.module.named_parameters()
        )
        found = [message.decode() for message in world.all_gather_bytes(f"{equal} {pipe.peak}".encode())]
        lines.append(f"{schedule}: {', '.join(found)}")
    return lines


# ---- synchronised statistics -----------------------------------------------------------------------------------------


def norm(world):
    """How far SyncBatchNorm on unequal parts of a batch is from BatchNorm2d on the whole, in float64."""
    random, sizes = np.random.default_rng(3), [3, 1, 5, 2][: world.size]
    images, weights = (random.standard_normal((sum(sizes), 6, 4, 4)) * 3 + shift for shift in (100, 0))
    own = slice(sum(sizes[: world.rank]), sum(sizes[: world.rank + 1]))
    whole, part = nn.BatchNorm2d(6, dtype="float64"), parallel.SyncBatchNorm(6, dtype="float64", world=world)
    errors = []
    for layer, rows in ((whole, slice(None)), (part, own)):
        x = Tensor(images[rows].copy(), requires_grad=True)
        out = layer(x)
        (out * Tensor(weights[rows].copy())).sum().backward()
        errors.append((out.detach().numpy(), x.grad.numpy()))
    error = max(abs(a[own] - b).max() for a, b in zip(*errors, strict=True))
    statistics = abs(whole.running_var.numpy() - part.running_var.numpy()).max()
    found = [message.decode() for message in world.all_gather_bytes(repr(float(max(error, statistics))).encode())]
    return [f"greatest error: {max(map(float, found))!r}"]


if __name__ == "__main__":
    with parallel.init() as everyone:
        said = globals()[sys.argv[1]](everyone)
        if everyone.rank == 0:
            print("\n".join(said), flush=True)
