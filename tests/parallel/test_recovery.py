"""One hash, whoever shares the work; whatever happens to one of them, the job is back and ends with that hash.

python tests/parallel/test_recovery.py FOLDER [KIND,KIND... [FAULT]] is what ranks do. KIND is one of KINDS. FAULT is
WHAT:RANK:STEP, done by that rank at that step of the first attempt. For each kind rank 0 prints the hash of weights,
buffers, state of the optimiser and history.
"""

import hashlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

import minigrad
from minigrad import checkpoint, data, nn, optim, parallel
from minigrad.train import Callback, History, fit
from tests.parallel.launch_runs import HOST, LAUNCH, MPIEXEC, finished, started, wait_for

SHARDS, EPOCHS, EVERY = 8, 3, 3
KINDS = {  # (optimiser, bytes of a bucket, whether its state is divided, options of fit)
    "sgd": ("SGD", 2000, False, {}),
    "adam": ("Adam", None, False, {}),
    "zero": ("Adam", 2000, True, {}),
    "clipped": ("Adam", 4000, True, {"clip": 0.1}),
    "accumulated": ("SGD", None, True, {"accumulate": 2}),
}
OPTIMIZERS = {"SGD": {"lr": 0.05, "momentum": 0.9}, "Adam": {"lr": 3e-3}}
told = []  # signals that ask this process to leave


class Keeper(Callback):
    """Writes checkpoints, does the fault, and leaves when told to."""

    def __init__(self, folder, fault, **parts):
        self.folder, self.parts, self.world = folder, parts, parts["model"].world
        what, rank, step = (fault or "none:-1:-1").split(":")
        first = os.environ.get("MINIGRAD_ATTEMPT", "0") == "0"
        self.fault = (what, int(step)) if first and int(rank) == self.world.rank else (None, -1)

    def save(self, history):
        checkpoint.save(self.folder / "checkpoint", **self.parts, history=history, keep=2, world=self.world)

    def restore(self, history):
        """Go on from the newest checkpoint that is whole."""
        there = self.world.rank == 0 and checkpoint.exists(self.folder / "checkpoint")
        if self.world.broadcast_bytes(b"1" if there else b""):
            rest = {"history": history, "generator": minigrad.default_generator, "world": self.world}
            checkpoint.load(self.folder / "checkpoint", **self.parts, **rest)

    def on_step(self, history):
        if history.steps % EVERY == 0:
            self.save(history)
        what, step = self.fault
        if history.steps == step:
            (self.folder / "fault").touch()
            FAULTS[what](self)

    def stop(self, history):
        return bool(told)


def error(keeper):
    raise ValueError("a mistake of one rank")


def tear(keeper):
    """The disk loses the end of the newest file, and the power goes."""
    files = (keeper.folder / "checkpoint").glob("*.safetensors")
    file = max(files, key=lambda file: file.stat().st_mtime_ns)
    file.write_bytes(file.read_bytes()[:1000])
    FAULTS["kill"](keeper)


FAULTS = {
    "kill": lambda keeper: os.kill(os.getpid(), signal.SIGKILL),
    "halt": lambda keeper: os.kill(os.getpid(), signal.SIGSTOP),
    "leave": lambda keeper: os.kill(os.getpid(), signal.SIGTERM),
    "error": error,
    "wait": lambda keeper: time.sleep(2),
    "tear": tear,
}


def trained(world, folder, kind, fault=None):
    """A line with the hash, or with the step at which it was left."""
    name, bucket_bytes, divided, options = KINDS[kind]
    minigrad.manual_seed(0)
    train, test = data.digits()
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.25), nn.Linear(4 * 36, 10)
    )
    model = parallel.DataParallel(network, world, shards=SHARDS, bucket_bytes=bucket_bytes)
    images = train.subset(slice(292))  # so that the last batch is of 4
    loader = data.Loader(images, 48, shuffle=True, transform=data.PadCrop(1), sampler=model.sampler)
    optimizer = getattr(optim, name)(model.parameters(), **OPTIMIZERS[name])
    if divided:
        optimizer = parallel.ShardedOptimizer(optimizer, model)
    keeper, history = Keeper(Path(folder), fault, model=model, optimizer=optimizer, loader=loader), History()
    keeper.restore(history)
    options = options | {"test": data.Loader(test, 200), "history": history, "callbacks": [keeper]}
    fit(model, loader, optimizer, EPOCHS, **options)
    if len(history) < EPOCHS:
        keeper.save(history)
        return f"stopped at {history.steps}"
    digest = hashlib.sha256(checkpoint.weights_hash(model).encode())
    for _, entries in sorted(optimizer.state_dict()["state"].items()):
        for name, value in sorted(entries.items()):
            digest.update(name.encode() + (value.tobytes() if hasattr(value, "tobytes") else str(value).encode()))
    digest.update(repr([history[name] for name in ("loss", "accuracy", "test_loss", "test_accuracy")]).encode())
    return f"hash {digest.hexdigest()}"


def all_of(world, folder, kinds, fault=None):
    """The lines of several kinds, each in a folder of its own."""
    lines = []
    for kind in kinds:
        if world.rank == 0:
            (Path(folder) / kind).mkdir(exist_ok=True)
        world.barrier()
        lines.append(trained(world, Path(folder) / kind, kind, fault))
    return lines


# ---- tests -----------------------------------------------------------------------------------------------------------

TIMEOUT = 4  # seconds that ranks wait for one another


# ---- whoever shares the work -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """{kind: line} of one rank; the hash does not depend on buckets and on how the state is divided."""
    (lines,) = parallel.run_local(all_of, 1, tmp_path_factory.mktemp("alone"), KINDS)
    found = dict(zip(KINDS, lines, strict=True))
    assert found["adam"] == found["zero"] and len(set(lines)) == len(KINDS) - 1
    return found


@pytest.mark.parametrize("ranks", [2, pytest.param(8, marks=pytest.mark.deep)])
def test_one_hash_in_threads(ranks, tmp_path, alone):
    assert parallel.run_local(all_of, ranks, tmp_path, KINDS) == [[*alone.values()]] * ranks


@pytest.mark.deep
def test_one_hash_by_mpiexec(tmp_path, alone):
    code, out, err = finished(started(MPIEXEC, "-n", 4, sys.executable, __file__, tmp_path, ",".join(KINDS)))
    assert (code, out.splitlines()) == (0, [*alone.values()]), err


# ---- whatever happens to one of them ---------------------------------------------------------------------------------


def job(folder, *words, ranks=4, options=()):
    """A launch of the program in a folder."""
    folder.mkdir(exist_ok=True)
    options = ["-n", ranks, "--timeout", TIMEOUT, "--logs", folder / "logs", *options]
    return started(*LAUNCH, *options, __file__, folder, *words)


BACK = {  # fault: (what is trained, how it is named)
    "kill:2:10": ("clipped", r"rank 2 on HOST: was killed by signal 9"),
    "error:1:5": ("accumulated", r"rank 1 on HOST: ValueError: a mistake of one rank"),
    "halt:1:8": ("sgd", r"rank \d on HOST: .*no message from rank 1 came in time"),
    "tear:0:10": ("zero", r"rank 0 on HOST: was killed by signal 9"),
}


@pytest.mark.deep  # the fast tier kills a rank of `minigrad train` in test_ranks_command.py
@pytest.mark.parametrize("fault", BACK)
def test_a_job_is_back_after(fault, tmp_path, alone):
    kind, named = BACK[fault]
    code, out, err = finished(job(tmp_path / "job", kind, fault))
    assert (code, out.splitlines()[-1]) == (0, alone[kind]), err
    (line,) = [line for line in err.splitlines() if line.startswith("launch: ")]
    again = r".*; starting again \(1 of 3 restarts\); logs: .*"
    assert re.fullmatch(f"launch: attempt 0: {named.replace('HOST', HOST)}{again}", line)


LEFT = {"kill:3:10": (1, "rank 3"), "leave:2:7": (0, "stopped at 7"), "wait:0:4": (0, "stopped at 4")}


@pytest.mark.deep
@pytest.mark.parametrize("fault", LEFT)
def test_fewer_ranks_go_on_where_a_job_was_left(fault, tmp_path, alone):
    """No restarts were left; one rank was told to leave, which takes all along; or the launcher was told."""
    running = job(tmp_path / "job", "sgd", fault, options=["--max-restarts", 0])
    if fault.startswith("wait"):
        assert wait_for((tmp_path / "job/sgd/fault").exists)
        running.send_signal(signal.SIGTERM)
    code, out, err = finished(running)
    assert code == LEFT[fault][0] and LEFT[fault][1] in out + err, err
    code, out, err = finished(job(tmp_path / "job", ranks=2))
    assert (code, out.splitlines()) == (0, [alone["sgd"]]), err


def main(folder, kinds="sgd", fault=None):
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    with parallel.init() as world:
        lines = all_of(world, folder, kinds.split(","), fault)
        if world.rank == 0:
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
