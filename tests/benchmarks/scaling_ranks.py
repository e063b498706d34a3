"""What tests/benchmarks/scaling.py runs: ranks on links of a given speed, that train a network which sleeps.

Each rank is a process of its own, this file with --rank, in a network namespace of its own; a bridge joins them, and
every link is shaped both ways (tc tbf). Sleeping layers need no cores, so two are enough for four ranks.
"""

import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ELEMENTS = (20_000, 60_000, 120_000, 250_000, 250_000, 500_000, 500_000, 300_000)  # of each layer, float32: 8 MB
SECONDS = 0.3  # that a step sleeps
FITTED = (500_000, 4_000_000)  # bytes of the all-reduces that latency and bandwidth come from
BUCKETS = (None, 4_000_000)  # bytes; None: DataParallel's own choice
ROUNDS = 9
DEADLINE = 240  # seconds for one link


# ---- a rank --------------------------------------------------------------------------------------------


def sleeping_model():
    """A Module whose layers sleep, in backward twice as long as in forward, but for the first."""
    import numpy as np

    import minigrad
    from minigrad import nn
    from minigrad.engine import primitive

    unit = SECONDS / (3 * len(ELEMENTS) - 1)

    @primitive
    def pause(x, w, backward):
        time.sleep(unit)
        return x.copy()

    def gradient(w_shape, backward):
        time.sleep(backward)
        return minigrad.ones(w_shape)

    pause.grads(x=lambda g: g, w=gradient)

    class Sleeping(nn.Module):
        def __init__(self):
            self.weights = nn.ParameterList([nn.Parameter(np.zeros(count, np.float32)) for count in ELEMENTS])

        def forward(self, x):
            for index, weight in enumerate(self.weights):
                x = pause(x, weight, unit * (2 if index else 1))
            return x.sum()

    return Sleeping()


def run_rank():
    """Measure, and print what was found as JSON on rank 0."""
    import numpy as np

    import minigrad
    from minigrad import parallel

    world = parallel.init()
    x = minigrad.Tensor(np.zeros(1, np.float32), requires_grad=True)
    plain = sleeping_model()

    def train(model):
        model.zero_grad()
        model(x).backward()

    def train_then_exchange(arrays):
        train(plain)
        for array in arrays:
            world.all_reduce(array)

    works = {"alone": lambda: train(plain)}
    for nbytes in FITTED:
        array = np.ones(nbytes // 4, np.float32)
        works[nbytes] = lambda array=array: world.all_reduce(array)
    cuts = {}
    for nbytes in BUCKETS:
        model = parallel.DataParallel(sleeping_model(), bucket_bytes=nbytes)
        cuts[nbytes] = _cuts(model.reducer.buckets)
        arrays = [np.ones(sum(ELEMENTS[::-1][start:stop]), np.float32) for start, stop in cuts[nbytes]]
        works[nbytes, True] = lambda model=model: train(model)
        works[nbytes, False] = lambda arrays=arrays: train_then_exchange(arrays)
    times = timed(world, works)
    steps = [
        {"cuts": cuts[nbytes], "overlap": overlap, "seconds": times[nbytes, overlap]}
        for nbytes in BUCKETS
        for overlap in (True, False)
    ]
    if world.rank == 0:
        print(json.dumps({"alone": times["alone"], "fitted": [times[size] for size in FITTED], "steps": steps}))
    world.barrier()


def _cuts(buckets):
    """The ranges (start, end) of gradients in buckets."""
    ends = [0]
    for bucket in buckets:
        ends.append(ends[-1] + len(bucket.tensors))
    return list(zip(ends[:-1], ends[1:], strict=True))


def timed(world, works):
    """{name: seconds of the slowest rank, the median over rounds}.

    A round does each work once, so that a drift of the machine's speed meets all; the first warms up.
    """
    times = {name: [] for name in works}
    for _ in range(ROUNDS + 1):
        for name, work in works.items():
            world.barrier()
            begun = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - begun)
    mine = json.dumps([seconds[1:] for seconds in times.values()]).encode()
    ranks = [json.loads(text) for text in world.all_gather_bytes(mine)]
    return {
        name: statistics.median(map(max, zip(*everyone, strict=True)))
        for name, everyone in zip(works, zip(*ranks, strict=True), strict=True)
    }


# ---- links ---------------------------------------------------------------------------------------------


def missing():
    """What hinders the measurement on this machine; None if nothing does."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "wants Linux and root, to make network namespaces"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"wants the command {tool}, of iproute2"
    with Links(1, 100) as links:
        return links.refused


def command(text):
    """What the command complains about; nothing if it succeeds."""
    done = subprocess.run(text.split(), capture_output=True, text=True)
    return f"{text}: {done.stderr.strip()}" if done.returncode else ""


class Links:
    """Network namespaces, one for each rank, that a bridge joins by links of so many Mbit/s both ways.

    refused     what went wrong in making them, None if nothing did
    """

    def __init__(self, ranks, megabits):
        self.name = f"mgs{os.getpid() % 100000}"
        self.spaces = [f"{self.name}n{rank}" for rank in range(ranks)]
        self.megabits, self.refused = megabits, None

    def address(self, rank):
        return f"10.79.0.{rank + 1}"

    def _commands(self):
        # Bursts of a large packet or of a millisecond, too small to lend speed to a message; queues that lose nothing,
        # because TCP waits for 0.2 s before it sends a lost packet again.
        shape = f"root tbf rate {self.megabits}mbit burst {max(66_000, self.megabits * 125)} limit 64mb"
        yield f"ip link add {self.name}b type bridge"
        yield f"ip link set {self.name}b up"
        for rank, space in enumerate(self.spaces):
            yield f"ip netns add {space}"
            yield f"ip link add {self.name}v{rank} type veth peer name eth0 netns {space}"
            yield f"ip link set {self.name}v{rank} master {self.name}b up"
            yield f"ip -n {space} addr add {self.address(rank)}/24 dev eth0"
            yield f"ip -n {space} link set eth0 up"
            yield f"ip -n {space} link set lo up"
            yield f"tc qdisc add dev {self.name}v{rank} {shape}"
            yield f"tc -n {space} qdisc add dev eth0 {shape}"

    def __enter__(self):
        self.refused = next(filter(None, map(command, self._commands())), None)
        return self

    def __exit__(self, *error):
        for rank, space in enumerate(self.spaces):
            command(f"ip link del {self.name}v{rank}")  # with its namespace it would go too, but some time later
            command(f"ip netns del {space}")
        command(f"ip link del {self.name}b")


def measured(ranks, megabits):
    """What rank 0 prints. Errors: SystemExit if the links cannot be made, or a rank fails."""
    key = secrets.token_hex(16)
    with Links(ranks, megabits) as links:
        if links.refused:
            sys.exit(f"scaling: {links.refused}")
        processes = [_started(links, rank, ranks, key) for rank in range(ranks)]
        try:
            texts = [process.communicate(timeout=DEADLINE)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    if any(process.returncode for process in processes):
        sys.exit(f"scaling: a rank of {ranks} at {megabits} Mbit/s failed")
    return json.loads(texts[0])


def _started(links, rank, ranks, key):
    job = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": links.address(0), "MASTER_PORT": 29500}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    variables = {**os.environ, "MINIGRAD_KEY": key, "PYTHONPATH": paths, "NUMBA_NUM_THREADS": "1"}
    variables |= {name: str(value) for name, value in job.items()}
    line = ["ip", "netns", "exec", links.spaces[rank], sys.executable, __file__, "--rank"]
    return subprocess.Popen(line, env=variables, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    if sys.argv[1:] != ["--rank"]:
        sys.exit("run tests/benchmarks/scaling.py")
    run_rank()
