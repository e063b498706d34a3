"""Processes and threads that compute at once: python -m tests.core.worker_program CASE, in a process of its own.

Each case prints the name of Numba's layer of threads when it has seen that all results have the bits of one that was
alone. Whatever hangs is ended by the time limit of who started this.
"""

import multiprocessing
import os
import sys
import threading
import time
from hashlib import sha256

import numba
import numpy as np

import minigrad
from minigrad import Tensor, data, optim
from minigrad.device.random import Generator, drawing_from
from minigrad.nn import functional as F
from minigrad_kernels.toolchain import cpu, jit, set_threads, threads
from tests.core.same_bits import network, share_everything

STEPS, WORKERS = 3, 3


def batches():
    images = data.digits()[0].subset(slice(32 * STEPS))
    augment = data.Compose([data.PadCrop(1), data.Flip(), data.Normalize(images.mean, images.std)])
    return data.Loader(images, 32, shuffle=True, seed=4, transform=augment)


def trained(seed=1):
    """The hash of what a short training leaves, which draws from a Generator of its own."""
    with drawing_from(Generator(seed)):
        model = network()
        optimizer = optim.Adam(model.parameters())
        for x, y in batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    found = b"".join(np.array(tensor.detach()).tobytes() for tensor in model.state_dict().values())
    return sha256(found).hexdigest()


def drawn(_=0):
    """What the default generator gives next: numbers of initialisers, and a mask of dropout."""
    return minigrad.randn(3).tolist() + F.dropout(minigrad.ones(64), 0.5).tolist()


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


def busy(function):
    """(stop, wait): a thread that calls the function again and again until stop is set."""
    stop = threading.Event()

    def run():
        while not stop.is_set():
            function()

    thread = threading.Thread(target=run)
    thread.start()
    return stop, thread


def at_once(work):
    """Have as many threads begin the same work at once, each given its number."""
    begin = threading.Barrier(WORKERS)
    workers = [threading.Thread(target=lambda seed: (begin.wait(), work(seed)), args=(i,)) for i in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


# ---- cases -----------------------------------------------------------------------------------------------------------


def first_calls_of_several_threads():
    """Threads that need the same kernels when none is there yet."""

    def gradient():
        x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4), requires_grad=True)
        (x.relu() @ x.T).softmax(1).square().sum().backward()
        return x.grad.numpy().tobytes()

    found = []
    at_once(lambda seed: found.append(gradient()))
    assert found == [gradient()] * WORKERS


def threads_and_forks():
    """Trainings in several threads, each of which enters the team of threads; then forks, which may have no team."""
    alone, found = [trained(seed) for seed in range(WORKERS)], {}
    at_once(lambda seed: found.update({seed: [trained(seed) for _ in range(3)]}))
    assert found == {seed: [alone[seed]] * 3 for seed in range(WORKERS)}
    if hasattr(os, "fork"):
        assert in_child(lambda: trained() == alone[1] and threads() == 1)
        assert in_child(lambda: in_child(lambda: trained() == alone[1]))
        forked_from_busy_threads(alone[1])
        assert trained() == alone[1] and threads() == 2


def forked_from_busy_threads(alone):
    """Forks while other threads train, load batches and compile."""
    numbers = iter(range(1 << 30))

    def compile_one():
        time.sleep(0.01)
        known = {"__name__": __name__}
        exec(f"def added(x):\n    return x + {next(numbers)}", known)
        jit(known["added"])(1.0)

    others = [busy(work) for work in (trained, lambda: list(batches()), compile_one)]
    try:
        for _ in range(4):
            time.sleep(0.02)
            assert in_child(lambda: [compile_one(), trained()][1] == alone)
    finally:
        for stop, thread in others:
            stop.set()
            thread.join()


def worker_processes():
    """Pools of workers, of every way to start them, after this process has computed: results and random numbers.

    A forked worker draws on from its parent's numbers, a spawned one from seed 0, batches from their own.
    """
    ways = multiprocessing.get_all_start_methods()
    alone = [trained(seed) for seed in range(WORKERS)]
    minigrad.manual_seed(7)
    drawn()
    first, found = minigrad.default_generator.get_state(), {}
    for way in ways:
        with multiprocessing.get_context(way).Pool(1) as pool:
            found[way] = pool.apply_async(drawn).get(100)
            assert pool.map_async(trained, range(WORKERS)).get(100) == alone, way
    assert minigrad.default_generator.get_state() == first
    continued = drawn()
    minigrad.manual_seed(0)
    fresh = drawn()
    assert continued != fresh and found == {way: continued if way == "fork" else fresh for way in ways}
    if "fork" in ways:
        forked_with_an_open_loader(alone[1])


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
    stop, thread = busy(lambda: list(batches()))
    try:
        for _ in range(4):
            assert in_child(told)
    finally:
        stop.set()
        thread.join()
    assert len(list(iterator)) == STEPS - 1


def main():
    share_everything()
    set_threads(2)
    globals()[sys.argv[1]]()
    with cpu._team_lock:
        cpu.linker().pool()
    print(numba.threading_layer())


if __name__ == "__main__":
    main()
