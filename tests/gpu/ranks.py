"""Ranks on one GPU: NCCL alone, replicas as threads, and several processes where NCCL takes them.

In a graph: see graphs.py. How fast several GPUs are is not measured: that needs several GPUs.
"""

import hashlib
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np

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
ABSENT, PRESENT = 8.0, 60.0  # seconds that a rank waits for one that does not come, and else
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
    """A hash of the weights after some steps of a batch in two shards."""
    minigrad.manual_seed(0)
    network = models.build(NETWORK, tasks.SHAPES[NETWORK]).to("cuda:0")
    model = parallel.DataParallel(network, world, shards=2, bucket_bytes=1 << 16)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for x, y in tasks.batches(NETWORK, BATCH, STEPS):
        for images, labels in model.shards((Tensor(to_gpu(x)), Tensor(to_gpu(y)))):
            F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    weights = b"".join(device.host(parameter.array).tobytes() for parameter in model.parameters())
    return hashlib.sha256(weights).hexdigest()


def replicas():
    """Two ranks as threads on one GPU: the weights of one rank with two shards."""
    assert len({*parallel.run_local(trained, 1), *parallel.run_local(trained, 2)}) == 1, "weights differ"
    return {"same_bits_as_one_rank": True}


# ---- several processes -----------------------------------------------------------------------------------------------


def several():
    """Ranks that are processes on one GPU, which NCCL takes from 2.30 on."""
    found = nccl.version()
    if found < nccl.SHARING:
        return f"not run: NCCL {found // 10_000}.{found // 100 % 100}.{found % 100}, wants 2.30"
    rows = {f"{size} ranks": said_by(processes(size, "collectives"), size) for size in RANKS}
    assert len({*said_by(processes(2, "training"), 2), *parallel.run_local(trained, 1)}) == 1
    code, said = processes(2, "absent")
    assert code == 75 and f"label=late): rank 0: not done after {ABSENT:g} s" in said, (code, said)
    return rows | {"same_bits_as_one_rank": True, "missing_rank": "exit code 75"}


def said_by(outcome, size):
    """What each rank said with MARK before it; all ended well."""
    code, said = outcome
    lines = [line.removeprefix(MARK) for line in said.splitlines() if line.startswith(MARK)]
    assert code == 0 and len(lines) == size, outcome
    return lines


def processes(size, what):
    """(exit code, output) of so many ranks that mpiexec starts."""
    command = [mpiexec(), "-n", str(size), sys.executable, "-m", "tests.gpu.ranks", what]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | SETTINGS, timeout=LIMIT, **pipes)
    return done.returncode, done.stdout


def tell(text):
    sys.stdout.write(f"{MARK}{text}\n")  # in one piece: the lines of all ranks arrive in one stream
    sys.stdout.flush()


def as_rank(what):
    """What one of several processes does."""
    world = parallel.init(timeout=ABSENT if what == "absent" else PRESENT)
    if what == "collectives":
        tell(checked(world, ROWS[::FEWER]))
    elif what == "training":
        tell(trained(world))
    else:
        x = to_gpu(np.ones(1 << 20, np.float32))
        with minigrad.deterministic(False):
            for _ in range(3):
                world.all_reduce(x, label="late")
            device.host(x)
            if world.rank == 1:
                time.sleep(20)
                os._exit(0)
            device.host(world.all_reduce(x, label="late"))


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
    as_rank(*sys.argv[1:])
