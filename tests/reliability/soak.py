"""A training of many steps in which nothing may grow: python tests/reliability/soak.py [--steps 10000] [--write]

Eager steps on the CPU with a loader's thread, recomputed layers, evaluations and checkpoints, and steps, replays and
new graphs on a GPU of the stand-in. Python's cyclic collector is off. Counted are Tensors and nodes of the tape, pooled
bytes, objects of Python, resident bytes, open files, threads; on the GPU bytes, events, streams and graphs. It prints
what was counted; the exit status is 1 if something has grown. --write stores the figures in results/soak.json.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # its own threads are more than the CPUs may be
ROOT = Path(__file__).parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "kernels")]

from tests.device.stand_in_gpus import gpus  # noqa: E402
from tests.reliability.results import store  # noqa: E402
from tests.reliability.soaking import BATCHES, JSON, OF_STAND_INS, OnCpu, OnGpu, grown, soak  # noqa: E402

tqdm.monitor_interval = 0  # or it starts a thread of its own, which would be counted


def on_cpu(rounds):
    """(counts, what has grown, objects that only the collector found)."""
    with tempfile.TemporaryDirectory() as folder:
        found, cycles = soak(OnCpu(folder), rounds, progress=lambda rounds: tqdm(rounds, "CPU", unit="round"))
    wrong = grown(found)
    if cycles > JSON * rounds / 10:
        wrong["objects in cycles"] = cycles
    return found, wrong, cycles


def on_gpu(rounds):
    with gpus(1, execute=False) as machine:
        progress = lambda rounds: tqdm(rounds, "GPU", unit="round")
        found, _ = soak(OnGpu(machine), rounds, machine, progress=progress)
    kept = [{name: n for name, n in counts.items() if name not in OF_STAND_INS} for counts in found]
    return kept, grown(kept)


def show(name, found, wrong):
    print(f"{name}: first and last count, and what has grown: {wrong or 'nothing'}")
    for count in found[0]:
        print(f"    {count:20} {found[0][count]:>14,} {found[-1][count]:>14,}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="on the CPU")
    parser.add_argument("--gpu-steps", type=int, default=800, help="on a GPU of the stand-in")
    parser.add_argument("--write", action="store_true", help="store the figures")
    arguments = parser.parse_args()
    rounds, gpu_rounds = (max(10, -(-n // BATCHES // 10) * 10) for n in (arguments.steps, arguments.gpu_steps))
    begun = time.perf_counter()
    found, wrong, cycles = on_cpu(rounds)
    show("CPU", found, wrong)
    there, wrong_there = on_gpu(gpu_rounds)
    show("GPU of the stand-in", there, wrong_there)
    steps, gpu_steps = rounds * BATCHES, gpu_rounds * BATCHES
    if arguments.write:
        more = (found[-1]["resident bytes"] - found[0]["resident bytes"]) / 2**20
        store(
            "soak",
            f"{steps:,} steps on the CPU with loader, checkpoints and no cyclic collector, {gpu_steps:,} on a GPU of "
            "the stand-in: Tensors, nodes, pooled and GPU bytes, files, threads, streams, events, graphs",
            f"{len(wrong) + len(wrong_there)} of them grew; resident memory {more:+.1f} MiB",
            "python tests/reliability/soak.py --write",
            seconds=round(time.perf_counter() - begun),
            counts={"cpu": found, "gpu": there},
            grown={"cpu": wrong, "gpu": wrong_there},
            objects_in_cycles=cycles,
        )
    sys.exit(bool(wrong or wrong_there))


if __name__ == "__main__":
    main()
