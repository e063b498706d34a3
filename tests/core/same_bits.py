"""Whether results have the same bits for any number of threads: python -m tests.core.same_bits PART THREADS...

It prints JSON: how many results of the part were compared, which differ, a hash of all of them to compare with other
processes, and how often work was handed to several threads. NUMBA_NUM_THREADS must allow the largest number of threads.
Work is shared however little it is, or the small samples of the tables would all stay on one thread; a table of calls
with large sums is shared as it would be anyway.
"""

import hashlib
import json
import sys

import numpy as np

import minigrad
from minigrad import Tensor, amp, data, device, nn, ops, optim
from minigrad.core.tape import grad
from minigrad.train import fit
from minigrad_kernels.conv2d import winograd_plan
from minigrad_kernels.toolchain import cpu, product, set_threads
from tests.ops.cases import all_ops, away, classes, real, sample
from tests.optim.optim_parts import RULES

__all__ = ["TRAININGS", "network", "operator_rows", "share_everything"]


def share_everything():
    """Hand all work to all threads, however little it is. For a process that does nothing else."""
    cpu.shared.alone = cpu.shared.__call__
    product.SHARED_WORK = winograd_plan.SHARED_WORK = 0


# ---- ops -------------------------------------------------------------------------------------------------------------

IMAGES = real(20, 8, 21, 19)
LARGE = {  # sums beyond the sizes from which kernels are shared
    "sum": [sample(real(400, 501)), sample(real(400, 501), 0), sample(real(40, 50, 101), (0, 2))],
    "var": [sample(real(400, 501), 1)],
    "amax": [sample(real(400, 501)), sample(real(400, 501), 1), sample(real(40, 50, 101), 1)],
    "cumsum": [sample(real(300, 401), 1), sample(real(300, 401), 0)],
    "logsumexp": [sample(real(300, 401), 1)],
    "matmul": [sample(real(300, 257), real(257, 131)), sample(real(7, 90, 80), real(7, 80, 70))],
    "linear": [sample(real(64, 784), real(100, 784), real(100)), sample(real(2000, 33), real(17, 33))],
    "mm": [sample(real(5, 9000), real(9000, 3))],
    "conv2d": [
        sample(IMAGES, real(16, 8, 3, 3), real(16), padding=1),
        sample(IMAGES, real(8, 1, 3, 3), padding=1, groups=8),
        sample(real(64, 1, 28, 28), real(6, 1, 5, 5), real(6)),
        sample(real(20, 24, 14, 14), real(40, 24, 7, 7), stride=2, padding=3),
    ],
    "conv_transpose2d": [sample(IMAGES, real(8, 12, 3, 3), stride=2)],
    "max_pool2d": [sample(away(20, 8, 21, 19), 2), sample(away(20, 8, 21, 19), 3, 2, 1)],
    "avg_pool2d": [sample(IMAGES, 3, 2, 1)],
    "batch_norm": [
        sample(IMAGES, None, None, real(8), real(8), training=True),
        sample(real(700, 90), None, None, real(90), real(90), training=True),
    ],
    "layer_norm": [sample(real(300, 190), (190,), real(190), real(190))],
    "group_norm": [sample(IMAGES, 2, real(8), real(8))],
    "softmax": [sample(real(300, 401), 1), sample(real(40, 10, 15, 15), 1)],
    "log_softmax": [sample(real(3000, 11), 1)],
    "cross_entropy": [sample(real(3000, 11), classes(11, 3000)), sample(real(20, 5, 31, 30), classes(5, 20, 31, 30))],
    "embedding": [sample(classes(50, 4000), real(50, 40))],
    "gather": [sample(real(200, 300), 1, classes(300, 200, 150)), sample(real(200, 300), 0, classes(200, 400, 150))],
    "scatter_add": [sample(real(60, 300), 0, classes(60, 900, 300), real(900, 300))],
}


def operator_rows():
    """(name, op, sample) of all rows of the tables, and of the large calls."""
    rows = [(f"{op.name}{one}", op.name, one) for op in all_ops() for one in op.samples]
    return rows + [(f"{name}{one}", name, one) for name, samples in LARGE.items() for one in samples]


def tensors(*values):
    found = []
    for value in values:
        if isinstance(value, list | tuple):
            found += tensors(*value)
        elif isinstance(value, Tensor):
            found.append(value)
    return found


def values_and_gradients(name, one):
    """What the op gives, and the gradients."""
    args, kwargs = one.draw(lambda array, wants: Tensor(array, requires_grad=wants), np.float32)
    minigrad.manual_seed(0)
    outputs = tensors(getattr(ops, name)(*args, **kwargs))
    live = [x for x in outputs if x.requires_grad and device.is_floating(x.dtype)]
    sources = [x for x in tensors(args, list(kwargs.values())) if x.requires_grad]
    weights = [Tensor(np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype)) for x in live]
    found = grad(live, sources, weights, allow_unused=True) if live else ()
    return [x.detach().numpy() for x in (*outputs, *(g for g in found if g is not None))]


def operators():
    """(name, arrays) of every row."""
    for name, op, one in operator_rows():
        yield name, values_and_gradients(op, one)


# ---- optimisers ------------------------------------------------------------------------------------------------------

SHAPES = (64, 32, 3, 3), (401, 301), (401,), ()


def after_steps(make, clip):
    """Parameters and state after some steps on drawn gradients."""
    rng = np.random.default_rng(0)
    parameters = [nn.Parameter(rng.standard_normal(shape).astype(np.float32)) for shape in SHAPES]
    optimizer, norms = make(parameters), []
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = Tensor(rng.standard_normal(parameter.shape).astype(np.float32))
        if clip:
            norms.append(optim.clip_grad_norm_(parameters, clip))
        optimizer.step()
    return [np.asarray(value) for value in (*(x.detach().numpy() for x in (*parameters, *norms)), *states(optimizer))]


def states(optimizer):
    return [value for entry in optimizer.state_dict()["state"].values() for value in entry.values()]


def optimizers():
    for name, make in RULES.items():
        for clip in (None, 0.5):
            yield f"{name} clip={clip}", after_steps(make, clip)


# ---- trainings -------------------------------------------------------------------------------------------------------


def network():
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(32 * 16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10)),
    )


def trained(kind, **options):
    """Losses, weights, statistics and the optimiser's state after two epochs of augmented batches."""
    minigrad.manual_seed(3)
    images = data.digits()[0].subset(slice(300))
    augment = data.Compose([data.PadCrop(1), data.Flip(), data.Normalize(images.mean, images.std)])
    loader = data.Loader(images, 64, shuffle=True, seed=5, transform=augment)
    model = network()
    optimizer = kind(model.parameters(), lr=0.02)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    history = fit(model, loader, optimizer, 2, test=data.Loader(images, 100), schedule=schedule, **options)
    weights = [tensor.detach().numpy() for tensor in model.state_dict().values()]
    return [np.asarray(value) for value in (history["loss"], history["test_loss"], *weights, *states(optimizer))]


TRAININGS = {
    "SGD": lambda: trained(lambda parameters, lr: optim.SGD(parameters, lr, momentum=0.9)),
    "Adam, clipped": lambda: trained(optim.Adam, clip=1.0),
    "AdamW, accumulated": lambda: trained(optim.AdamW, accumulate=2),
    "RMSprop, bfloat16": lambda: trained(optim.RMSprop, precision="bfloat16"),
    "Adagrad, float16": lambda: trained(optim.Adagrad, precision="float16", scaler=amp.GradScaler(init_scale=2.0**10)),
}


def trainings():
    for name, train in TRAININGS.items():
        yield name, train()


# ---- the comparison --------------------------------------------------------------------------------------------------

PARTS = {"ops": operators, "optimisers": optimizers, "trainings": trainings}


def digests(part):
    found = {}
    for name, arrays in PARTS[part]():
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        found.setdefault(name, []).append(digest.hexdigest())
    return found


def count_teams():
    """A list that has an entry for each time from now on that work was handed to several threads."""
    entered, enter = [], cpu.in_team

    def counted(*arguments):
        entered.append(None)
        return enter(*arguments)

    cpu.in_team = counted
    return entered


def main():
    """Print what the head of this file says."""
    part, *counts = sys.argv[1:]
    share_everything()
    teams, found = count_teams(), {}
    for count in counts:
        set_threads(int(count))
        found[count] = digests(part)
    first = found[counts[0]]
    different = [
        f"{name} on {count} threads" for count in counts for name in first if found[count][name] != first[name]
    ]
    whole = hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()
    facts = {"compared": sum(map(len, first.values())), "different": different, "hash": whole, "teams": len(teams)}
    json.dump(facts, sys.stdout)


if __name__ == "__main__":
    main()
