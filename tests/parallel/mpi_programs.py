"""What ranks under mpiexec do in tests: python -m tests.parallel.mpi_programs PROGRAM [WORD].

At the end rank 0 prints "all right".
"""

import os
import signal
import sys
import time

import numpy as np

import minigrad
from minigrad import Tensor, nn, parallel
from minigrad.nn import functional as F
from tests.collective_table import ROWS, check_row, run_row


def collectives(world):
    """Every row of the table: equal to what threads give, on every rank. Then rank 1 ends long before the others."""
    wanted = parallel.run_local(lambda local: [run_row(local, row) for row in ROWS], world.size)[world.rank]
    for row, right in zip(ROWS, wanted, strict=True):
        found = run_row(world, row)
        check_row(row, world.size, found, right)
        assert len(set(world.all_gather_bytes(found.tobytes()))) == 1, (row, "differs between ranks")
    if world.rank != 1:
        time.sleep(1.5)


def messages(world):
    """Tensors by tags, sizes and order; a pipeline; a message nobody takes."""
    up, down = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for size in (0, 1, 5_000, 300_000):
        for number in range(3):
            parallel.send(Tensor(np.full(size, 1.0 + number + world.rank)), up, 1, world)  # nobody waits for it
        parallel.send(Tensor(np.full(size, -1.0)), up, 0, world)
        received = [parallel.recv(size, None, down, tag, world).numpy() for tag in (0, 1, 1, 1)]
        for found, value in zip(received, (-1, 1 + down, 2 + down, 3 + down), strict=True):
            assert found.shape == (size,) and (found == value).all()
    assert stages(world) == parallel.run_local(stages, world.size)[world.rank]
    if world.rank == 0:
        parallel.send(Tensor(np.ones(3_000_000)), 1, 2, world)
    world.barrier()


def stages(world):
    """The gradients of a stage; what stages send one another is larger than what MPI sends in one packet."""
    minigrad.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 3000), nn.Tanh(), nn.Linear(3000, 3), nn.Linear(3, 3))
    pipe = parallel.Pipeline(model, world, 4)
    pipe.train_step(Tensor(np.arange(32.0, dtype=np.float32).reshape(8, 4)), Tensor(np.arange(8) % 3), F.cross_entropy)
    return [parameter.grad.numpy().tobytes() for parameter in pipe.module.parameters()]


def fail(world):
    raise ValueError("a mistake of rank 1")


ENDS = {  # what rank 1 does where the others add
    "differs": lambda world: world.all_gather(np.ones(3_000_000), np.ones(1_000_000), label="w"),
    "stopped": lambda world: os.kill(os.getpid(), signal.SIGSTOP),
    "fails": fail,
    "leaves": lambda world: sys.exit(3),
    "aborts": lambda world: world.abort("rank 1 has had enough"),
}


def ends(world, how):
    """Each rank that hears how it ended prints it, and lets the error end the process."""
    world.barrier()
    try:
        if world.rank == 1:
            ENDS[how](world)
        while True:
            world.all_reduce(np.ones(1000), label="w")
    except parallel.CommunicationError as error:
        sys.stdout.write(f"rank {world.rank} heard: {error}\n")  # in one piece
        sys.stdout.flush()
        raise


def main(program, *words):
    world = parallel.init(timeout=2.0 if "stopped" in words else 20.0)
    assert world.transport.name == "MPI"
    globals()[program](world, *words)
    if world.rank == 0:
        print("all right")


if __name__ == "__main__":
    main(*sys.argv[1:])
