"""A training of many steps in which nothing may grow: python tests/reliability/soak.py [--steps 10000] [--write]

Eager steps on the CPU with a loader's thread, recomputed layers, evaluations and checkpoints, and steps, replays and
new graphs on a GPU of the stand-in. A round of steps ends where everything is as it was a round before. Python's
cyclic collector is off, so that whatever only it would find piles up and is seen. Counted are Tensors and nodes of the
tape, pooled bytes, objects of Python, resident bytes, open files, threads; on the GPU bytes, events, streams and
graphs. What was counted is printed; the exit status is 1 if something has grown. --write stores the figures in
results/soak.json.
"""

import argparse
import gc
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # its own threads are more than the CPUs may be
if not __package__:
    sys.path[:1] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "kernels")]

import minigrad  # noqa: E402
from minigrad import Tensor, checkpoint, data, device, nn, no_grad, optim, recompute  # noqa: E402
from minigrad.core.tape import Node  # noqa: E402
from minigrad.graph import capture  # noqa: E402
from minigrad.nn import functional as F  # noqa: E402
from minigrad_kernels import launcher  # noqa: E402
from tests.device.stand_in_gpus import gpus  # noqa: E402
from tests.reliability.results import store  # noqa: E402

BATCHES, SIZE = 8, 16  # of a round
GPU_STEPS = 800  # on the stand-in
SLACK = {"blocks of Python": 1000, "resident bytes": 8 << 20, "objects in cycles": 100}  # what goes up and down


def counted(machine=None):
    """How much there is of what must not grow; `machine` is that of the stand-in for GPUs, which itself keeps books."""
    statistics, kinds = device.memory_statistics(), {"tensors": Tensor, "nodes": Node}
    found = {"pool bytes": statistics["reserved_bytes"], "pool bytes in use": statistics["used_bytes"]}
    if machine is not None:
        import cupy

        kinds |= {"events": cupy.cuda.Event, "streams": cupy.cuda.Stream, "graphs": cupy.cuda.Graph}
        found |= {"GPU bytes in use": machine.devices[0].used, "GPU bytes": machine.devices[0].held}
    everything = gc.get_objects()
    found |= {name: sum(issubclass(type(one), kind) for one in everything) for name, kind in kinds.items()}
    everything.clear()  # it may hold what holds it
    for name, folder in (("files", "/proc/self/fd"), ("threads", "/proc/self/task")):
        if os.path.isdir(folder):
            found[name] = len(os.listdir(folder))
    if machine is None:
        found |= {"objects in cycles": gc.collect(), "blocks of Python": sys.getallocatedblocks()}
        if (statm := Path("/proc/self/statm")).exists():
            found["resident bytes"] = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return found


class Training:
    """Rounds of steps: augmented batches of a background thread, dropout, recomputed layers, clipping, graphs on a GPU.

    Each round ends with an evaluation, each tenth with a checkpoint that is loaded again, and then with a new graph.
    """

    def __init__(self, folder, machine=None):
        minigrad.manual_seed(0)
        self.folder, self.machine, self.rounds = folder, machine, 0
        device, images = "cuda" if machine else "cpu", data.digits()[0].subset(slice(BATCHES * SIZE))
        augment = data.Compose([data.PadCrop(1), data.Flip(), data.Normalize(images.mean, images.std)])
        self.loader = data.Loader(images, SIZE, shuffle=True, transform=augment, device=device)
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        rest = nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10)
        self.model = nn.Sequential(self.first, *rest).to(device)
        self.optimizer, self.captured = optim.Adam(self.model.parameters()), capture(self.step)

    def step(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model[1:](recompute(self.first, x)), y).backward()
        optim.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def round(self):
        self.rounds += 1
        for number, (x, y) in enumerate(self.loader):
            (self.step if number % 2 else self.captured)(x, y)
        with no_grad():
            self.model.eval()
            self.model(x)
            self.model.train()
        if self.rounds % 10 == 0:
            self.captured.reset()
            checkpoint.save(self.folder, self.model, self.optimizer, keep=2)
            checkpoint.load(self.folder, self.model, self.optimizer)
        if self.machine:  # the stand-in keeps lists of what was launched
            self.machine.launches.clear()
            self.machine.graph_launches.clear()


def soak(training, rounds):
    """What was counted after ten rounds, and then after `rounds` more, which are taken up to a multiple of ten.

    Each count is taken right after a checkpoint or a new graph. Cycles pile up meanwhile, and plans of launchers are
    soon complete.
    """
    most, launcher.MOST, rounds = launcher.MOST, 16, -(-rounds // 10) * 10
    try:
        for _ in range(10):
            training.round()
        gc.collect()
        gc.disable()
        first = counted(training.machine)
        for _ in range(rounds):
            training.round()
        last = counted(training.machine)
    finally:
        launcher.MOST = most
        gc.enable()
    if "objects in cycles" in last:
        last["objects in cycles"] //= rounds  # Python's own encoder leaves some for each checkpoint
    return first, last


def grown(first, last):
    """{name: by how much} of what is more at the end than after ten rounds."""
    return {name: last[name] - n for name, n in first.items() if last[name] - n > SLACK.get(name, 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="on the CPU")
    parser.add_argument("--write", action="store_true", help="store the figures")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder, gpus(1, execute=False) as machine:
        found["GPU of the stand-in"] = soak(Training(folder, machine), GPU_STEPS // BATCHES)
    with tempfile.TemporaryDirectory() as folder:
        found["CPU"] = soak(Training(folder), options.steps // BATCHES)
    wrong = {name: grown(*both) for name, both in found.items()}
    for name, (first, last) in found.items():
        print(f"{name}: first and last count, and what has grown: {wrong[name] or 'nothing'}")
        print(*(f"    {count:20} {first[count]:>14,} {last[count]:>14,}" for count in first), sep="\n")
    if options.write:
        more = found["CPU"][1].get("resident bytes", 0) - found["CPU"][0].get("resident bytes", 0)
        checked = f"{options.steps:,} steps on the CPU with loader, checkpoints and no cyclic collector, "
        checked += f"{GPU_STEPS:,} on a GPU of the stand-in: Tensors, nodes, pooled and GPU bytes, files, "
        more = f"{sum(map(len, wrong.values()))} of them grew; resident memory {more / 2**20:+.1f} MiB"
        command = f"python tests/reliability/soak.py --steps {options.steps}"
        store("soak", f"{checked}threads, streams, events, graphs", more, command, counts=found)
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
