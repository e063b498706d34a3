"""Ranks on one GPU: NCCL alone, replicas as threads, and several processes where NCCL takes them.

In a graph: see graphs.py. How fast several GPUs are is not measured: that needs several GPUs.
"""

import hashlib
import os
import subprocess
import sys
import traceback
from pathlib import Path

import minigrad
from minigrad import Tensor, device, models, optim, parallel
from minigrad.nn import functional as F
from minigrad.parallel import nccl
from minigrad.parallel.launch import mpiexec
from minigrad.parallel.local import LocalTransport
from tests.benchmarks import tasks
from tests.parallel.collective_table import ROWS, check_row, run_row

from .timing import random

ROOT = Path(__file__).resolve().parents[2]
NETWORK, BATCH, STEPS = "lenet", 64, 3
ELEMENTS = 1 << 26
RANKS = (2, 4)
FEWER = 4  # processes take turns on the GPU, which takes time: one case of so many
LIMIT = 100  # seconds for several processes
PRESENT = 60.0  # seconds that a rank waits for the others
MARK = "rank says: "
SETTINGS = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "8", "NCCL_NVLS_ENABLE": "0"}


def to_gpu(x):
    return device.move(x, "cuda:0")


def world_of_one():
    return parallel.Communicator(LocalTransport(), backend="nccl")


def checked(world, rows):
    """Collectives beside NumPy, and beside ranks of threads on the CPU; how many there were."""
    wanted = parallel.run_local(lambda local: [run_row(local, row) for row in rows], world.size)[world.rank]
    for row, right in zip(rows, wanted, strict=True):
        check_row(row, world.size, run_row(world, row, to_gpu), right)
    return len(rows)


def collectives():
    with world_of_one() as world:
        return {"cases": checked(world, ROWS)}


def beside_compute():
    """What NCCL copies (of one rank, a gathering is a copy) is there after wait(), while the caller's stream works."""
    with world_of_one() as world:
        x, out, y = (random(ELEMENTS) for _ in range(3))
        for number in range(1, 9):
            x.fill(number)
            work = world.all_gather(out, x, asynchronous=True)
            y += 1
            out_now = work.wait() + 0  # after the copy, before the next one
            assert float(out_now.min()) == float(out_now.max()) == number, number
        return {"copies": number}


# ---- training --------------------------------------------------------------------------------------------------------


def trained(world):
    """A hash of the weights after some steps of a batch in shards."""
    minigrad.manual_seed(0)
    network = models.build(NETWORK, tasks.SHAPES[NETWORK]).to("cuda:0")
    model = parallel.DataParallel(network, world, shards=max(RANKS), bucket_bytes=1 << 16)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for x, y in tasks.batches(NETWORK, BATCH, STEPS):
        for images, labels in model.shards((Tensor(to_gpu(x)), Tensor(to_gpu(y)))):
            F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    weights = b"".join(device.host(parameter.array).tobytes() for parameter in model.parameters())
    return hashlib.sha256(weights).hexdigest()


def replicas():
    """Two ranks as threads on one GPU: the weights of one rank."""
    assert len({*parallel.run_local(trained, 1), *parallel.run_local(trained, 2)}) == 1, "weights differ"
    return {"same_bits_as_one_rank": True}


# ---- several processes -----------------------------------------------------------------------------------------------


def several():
    """Ranks that are processes on one GPU, which NCCL takes from 2.30 on: collectives, and the weights of one rank."""
    found, said = nccl.version(), {}
    if found < nccl.SHARING:
        return f"not run: NCCL {found // 10_000}.{found // 100 % 100}.{found % 100}, wants 2.30"
    weights = parallel.run_local(trained, 1)
    for size in RANKS:
        lines = [line.removeprefix(MARK).split() for line in processes(size).splitlines() if line.startswith(MARK)]
        assert len(lines) == size and [hashed for _, hashed in lines] == weights * size, lines
        said[f"{size} ranks"] = [int(cases) for cases, _ in lines]
    return said


def processes(size):
    """What so many ranks print, which mpiexec starts."""
    command = [mpiexec(), "-n", str(size), sys.executable, "-m", "tests.gpu.ranks"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    return subprocess.run(command, cwd=ROOT, env=os.environ | SETTINGS, timeout=LIMIT, check=True, **pipes).stdout


def as_rank(world):
    """What one of several processes does; it says how many collectives it checked, and the hash of its weights."""
    sys.stdout.write(f"{MARK}{checked(world, ROWS[::FEWER])} {trained(world)}\n")  # in one piece, among those of others
    sys.stdout.flush()


CHECKS = (collectives, beside_compute, replicas, several)


def ranks(found):
    found |= {"nccl": nccl.version(), "wrong": []}
    for check in CHECKS:
        try:
            found[check.__name__] = check()
        except Exception as error:
            traceback.print_exc()
            found["wrong"].append(f"{check.__name__}: {type(error).__name__}: {error}")
        print(f"  {check.__name__}: {found.get(check.__name__, 'failed')}", flush=True)
    found["failed"] = bool(found["wrong"])


if __name__ == "__main__":
    as_rank(parallel.init(timeout=PRESENT))
