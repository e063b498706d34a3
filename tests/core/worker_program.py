"""Threads and processes that compute at once: python -m tests.core.worker_program CASE, in a process of its own.

Each case sees that all results have the bits of one that was alone, and then prints the name of Numba's layer of
threads. Work is shared however little it is, or the small samples of the tables would all stay on one thread. Whatever
hangs is ended by the time limit of who started this.
"""

import os
import sys
import threading
from hashlib import sha256

import numba
import numpy as np

from minigrad import amp, data, nn, optim
from minigrad.device.random import Generator, drawing_from
from minigrad.train import fit
from minigrad_kernels.conv2d import winograd_plan
from minigrad_kernels.toolchain import cpu, product, set_threads, threads
from tests.ops.cases import all_ops
from tests.ops.test_ops import gradients, results, tensors, wrap
from tests.optim.optim_parts import RULES, give_gradients, parameters

STEPS, WORKERS = 3, 3


def batches():
    images = data.digits()[0].subset(slice(32 * STEPS))
    augment = data.Compose([data.PadCrop(1), data.Flip(), data.Normalize(images.mean, images.std)])
    return data.Loader(images, 32, shuffle=True, seed=4, transform=augment)


def trained(seed=1, kind=optim.Adam, **options):
    """The hash of what a short training leaves, which draws from a Generator of its own."""
    with drawing_from(Generator(seed)):
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Dropout(0.25), nn.Flatten()),
            *(nn.Linear(32 * 16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10)),
        )
        fit(model, batches(), kind(model.parameters(), lr=0.01), 1, **options)
    found = b"".join(np.array(tensor.detach()).tobytes() for tensor in model.state_dict().values())
    return sha256(found).hexdigest()


def in_child(function):
    """Whether the function is true in a forked child, which is given the time that this process has."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if function() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def at_once(work):
    """Have as many threads begin the same work at once, each given its number."""
    begin = threading.Barrier(WORKERS)
    workers = [threading.Thread(target=lambda seed: (begin.wait(), work(seed)), args=(i,)) for i in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


# ---- any number of threads -------------------------------------------------------------------------------------------


def of_row(op, sample):
    """What an op gives, and the gradients."""
    args, kwargs = sample.draw(wrap, np.float32)
    out = results(op, args, kwargs)
    found = gradients(out, [x for x in tensors(args, kwargs) if x.requires_grad])
    return [x.detach().numpy() for x in (*out, *(g for g in found if g is not None))]


def of_optimizer(make):
    """Parameters and state after some steps."""
    params = parameters()
    optimizer = make(params)
    for step in range(3):
        give_gradients(params, step)
        optim.clip_grad_norm_(params, 0.5)
        optimizer.step()
    values = [value for entry in optimizer.state_dict()["state"].values() for value in entry.values()]
    return [np.asarray(value) for value in (*(x.detach() for x in params), *values)]


def runs():
    """(name, function of no arguments whose arrays are compared) of ops, optimisers and trainings."""
    for op in all_ops():
        for one in op.samples:
            yield f"{op.name}{one}", lambda op=op, one=one: of_row(op, one)
    for name, make in RULES.items():
        yield name, lambda make=make: of_optimizer(make)
    for kind, options in (
        (optim.Adam, {"clip": 1.0}),
        (optim.SGD, {"accumulate": 2}),
        (optim.RMSprop, {"precision": "bfloat16"}),
        (optim.Adagrad, {"precision": "float16", "scaler": amp.GradScaler(init_scale=2.0**10)}),
    ):
        yield kind.__name__, lambda kind=kind, options=options: [np.array(trained(kind=kind, **options))]


def numbers_of_threads():
    """One, two and four threads give the same bits, and share work nearly everywhere."""
    entered, enter, compared = [], cpu.in_team, 0
    cpu.in_team = lambda *arguments: entered.append(None) or enter(*arguments)
    for name, run in runs():
        found = []
        for count in (1, 2, 4):
            set_threads(count)
            found.append([(array.dtype, array.shape, array.tobytes()) for array in run()])
        assert found[0] == found[1] == found[2], name
        compared += 1
    assert len(entered) > compared > 500


# ---- at once ---------------------------------------------------------------------------------------------------------


def threads_and_forks():
    """Trainings in several threads, each of which enters the team of threads; then forks, which may have no team."""
    alone, found = [trained(seed) for seed in range(WORKERS)], {}
    at_once(lambda seed: found.update({seed: [trained(seed) for _ in range(3)]}))
    assert found == {seed: [alone[seed]] * 3 for seed in range(WORKERS)}
    if hasattr(os, "fork"):
        assert in_child(lambda: trained() == alone[1] and threads() == 1)
        assert in_child(lambda: in_child(lambda: trained() == alone[1]))
        forked_with_an_open_loader(alone[1])
        assert trained() == alone[1] and threads() == 2


def forked_with_an_open_loader(alone):
    """A child that goes on with an iteration of its parent is told that it cannot, and may begin another."""

    def told():
        try:
            list(iterator)
        except RuntimeError as error:
            return "prefetch=0" in str(error) and trained() == alone
        return False

    iterator = iter(batches())
    next(iterator)
    assert in_child(told)
    assert len(list(iterator)) == STEPS - 1


if __name__ == "__main__":
    cpu.SMALL = 0
    product.SHARED_WORK = winograd_plan.SHARED_WORK = 0
    set_threads(2)
    globals()[sys.argv[1]]()
    with cpu._team_lock:
        cpu.linker().pool()
    print(numba.threading_layer())
