"""What ranks under mpiexec do in tests: python -m tests.mpi_programs PROGRAM. Rank 0 prints "all right" at the end."""

import os
import signal
import sys
import time

import numpy as np

from minigrad.parallel import init, mpi
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.errors import CommunicationError
from minigrad.parallel.local import run_local

from .collective_table import ROWS, check_row, run_row

TIMEOUT = 20.0


def _world(timeout=TIMEOUT):
    return Communicator(mpi.MpiTransport(), timeout=timeout)


def collectives():
    """Every row of the table: equal to what threads give, on every rank."""
    world = _world()
    wanted = run_local(lambda local: [run_row(local, row) for row in ROWS], world.size)[world.rank]
    for row, right in zip(ROWS, wanted, strict=True):
        found = run_row(world, row)
        check_row(row, world.rank, world.size, found, right)
        if row.alike:
            digests = world.all_gather_bytes(found.tobytes())
            assert len(set(digests)) == 1, (row, "differs between ranks")
    _end(world)


def pieces():
    """Payloads that are sent in several pieces, and arrays that are added in several."""
    mpi.PIECE, world = 1 << 15, _world()
    collectives_of(world)
    _end(world)


def collectives_of(world):
    x = np.arange(50_001, dtype=np.float64) + world.rank
    total = world.size * np.arange(50_001) + sum(range(world.size))
    for order in ("fixed", "native"):
        assert (world.all_reduce(x.copy(), order=order) == total).all()
    whole = np.empty(world.size * x.size)
    assert (world.all_gather(whole, x).reshape(world.size, -1) - x == np.arange(world.size)[:, None] - world.rank).all()
    part = world.reduce_scatter(np.empty(x.size), whole, order="native")
    assert (part == world.size * whole.reshape(world.size, -1)[world.rank]).all()
    assert (world.broadcast(x, 1)[:3] == [1, 2, 3]).all()


def messages():
    """Tags, sizes, order; a Work that is dropped; several begun beside the caller; groups."""
    world = _world()
    up, down = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for size in (0, 1, 5_000, 300_000):
        for number in range(3):
            world.send(np.full(size, number + world.rank), up, tag=1)  # nobody waits for it
        last = world.send(np.full(size, -1), up, tag=0)
        assert (world.recv(np.empty(size, int), down, tag=0) == -1).all()
        for number in range(3):
            assert (world.recv(np.empty(size, int), down, tag=1) == number + down).all()
        last.wait()
    arrays = [np.full(10_000 * i, world.rank + i, np.float32) for i in range(4)]
    orders = ["fixed", "native"] * 2
    works = [world.all_reduce(x, order=order, asynchronous=True) for x, order in zip(arrays, orders, strict=True)]
    for i, work in enumerate(works):
        assert (work.wait() == sum(range(world.size)) + i * world.size).all()
    group = world.split(world.rank % 2)
    for order in ("fixed", "native"):
        x = group.all_reduce(np.full(9, world.rank), order=order)
        assert (x == sum(range(world.rank % 2, world.size, 2))).all()
    world.barrier()
    _end(world)


def unreceived():
    """A large message that nobody takes does not keep the process."""
    world = _world()
    if world.rank == 0:
        world.send(np.ones(3_000_000), 1)
    world.barrier()
    _end(world)


DIFFERENT = {  # what rank 1 does where the others add 1,000 elements of float64
    "type": lambda world: world.all_reduce(np.ones(1000, np.float32), order="native", label="w"),
    "size": lambda world: world.all_reduce(np.ones(999), order="native", label="w"),
    "order": lambda world: world.all_reduce(np.ones(1000), order="fixed", label="w"),
    "call": lambda world: world.broadcast(np.ones(1000), label="b"),
    "large": lambda world: world.all_gather(np.ones(3_000_000), np.ones(1_000_000), label="b"),
}


def disagree(name):
    world = _world()
    other = DIFFERENT[name] if world.rank == 1 else None
    _fails(world, lambda: (other or (lambda world: world.all_reduce(np.ones(1000), order="native", label="w")))(world))


def absent():
    """Rank 1 stays away for longer than the deadline."""
    world = _world(timeout=1.0)
    if world.rank == 1:
        time.sleep(3)
    _fails(world, lambda: world.all_reduce(np.ones(1000), order="native", label="w"))


def killed():
    _after_one_step(lambda world: os.kill(os.getpid(), signal.SIGKILL))


def stopped():
    _after_one_step(lambda world: os.kill(os.getpid(), signal.SIGSTOP), timeout=2.0)


def exception():
    def fails(world):
        raise ValueError("a mistake of rank 1")

    _after_one_step(fails)


def with_block():
    with _world() as world:
        world.barrier()
        if world.rank == 1:
            raise ValueError("a mistake of rank 1")
        world.barrier()


def leaves():
    _after_one_step(lambda world: sys.exit(3))


def by_init(end):
    """The world of parallel.init(), which nobody closes."""
    world = init(timeout=TIMEOUT)
    assert world.transport.name == "MPI" and world.all_reduce(np.ones(3))[0] == world.size
    if world.rank == 1 and end == "exception":
        raise ValueError("a mistake of rank 1")
    if world.rank == 1 and end == "exit":
        sys.exit(3)
    if end == "well" and world.rank == 0:
        print("all right")
    elif end != "well":
        _fails(world, lambda: [world.all_reduce(np.ones(1000)) for _ in range(1_000_000)])


def leaves_early():
    """Rank 1 ends long before the others, and is not waited for."""
    world = _world()
    world.barrier()
    if world.rank != 1:
        time.sleep(1.5)
        if world.rank == 0:
            print("all right")


def aborts():
    _after_one_step(lambda world: world.abort("rank 1 has had enough"))


def threads():
    """An MPI that serves a single thread is refused."""
    import mpi4py

    mpi4py.rc.thread_level = "single"
    try:
        mpi.MpiTransport()
    except RuntimeError as error:
        print(error)


def _after_one_step(do, timeout=TIMEOUT):
    world = _world(timeout)
    world.barrier()
    if world.rank == 1:
        do(world)
    _fails(world, lambda: [world.all_reduce(np.ones(1000)) for _ in range(1_000_000)])


def _fails(world, call):
    """Prints how the call failed, and lets the error end the process."""
    begun = time.monotonic()
    try:
        call()
    except CommunicationError as error:
        seconds = time.monotonic() - begun
        sys.stdout.write(f"rank {world.rank} after {seconds:.1f} s: {type(error).__name__}: {error}\n")  # in one piece
        sys.stdout.flush()
        raise


def _end(world):
    world.close()
    if world.rank == 0:
        print("all right")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
