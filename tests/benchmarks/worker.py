"""A process that runs one contender: python tests/benchmarks/worker.py JOB

JOB, in JSON: contender, threads, kind ("steps", "epochs" or "ops"), and for the first two task and size. It says in a
line of JSON that it is ready, and so answers each line of standard input: the name of a method below and its arguments.
"""

import contextlib
import itertools
import json
import math
import os
import re
import resource
import sys
import time
from pathlib import Path

from engines import ENGINES
from tasks import Task, epoch_data

STATUS = Path("/proc/self/status")
FALLEN = 0.9  # of the first loss: what shows that a contender learns
PROOF_STEPS, PROOF_SECONDS = 1000, 20  # that it may take for it, behind the measured ones


def peak_megabytes():
    """The most memory that this program had at once.

    On Linux ru_maxrss begins with what the process had that started this one, so it is asked only elsewhere.
    """
    with contextlib.suppress(FileNotFoundError):
        return round(int(re.search(r"^VmHWM:\s*(\d+) kB$", STATUS.read_text(), re.MULTILINE)[1]) / (1 << 10), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def measured(call):
    """(what it returns, seconds)."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


class Steps:
    """Single steps."""

    def __init__(self, engine, task, size, **_):
        self.step, self.parameters = engine.training(Task(**task), size)
        self.first, self.number = self.step(0).item(), 1

    def steps(self, count):
        """Seconds of so many."""
        found = []
        for _ in range(count):
            loss, seconds = measured(lambda: self.step(self.number))
            if not math.isfinite(loss.item()):
                raise ValueError("its loss is not finite")
            self.number += 1
            found.append(seconds)
        return found

    def end(self):
        """Train on the first batch until its loss is clearly below what it was; ValueError if it never is."""
        last, start = self.step(0).item(), time.perf_counter()
        for _ in range(PROOF_STEPS):
            if last < FALLEN * self.first or time.perf_counter() - start > PROOF_SECONDS:
                break
            last = self.step(0).item()
        if not last < FALLEN * self.first:
            raise ValueError(f"its loss does not fall: {self.first:.4f} at first, {last:.4f} at last")


class Epochs(Steps):
    """Epochs of a data set, or their first `most` batches, with the loader of the library."""

    def __init__(self, engine, task, size, workers, most=None, **_):
        images, labels, _ = epoch_data()
        _, step = engine.prepared(Task(**task))
        loader = engine.loader(images, labels, size, workers)

        def epoch(_):
            for batch in itertools.islice(loader, most):
                loss = step(*batch)
            return loss

        self.step, self.parameters, self.number = epoch, None, 0
        self.first = step(*next(iter(loader))).item()


def ops(engine, **_):
    from ops import Ops

    return Ops(engine)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    job = json.loads(sys.argv[1])
    engine = ENGINES[job["contender"]](job["threads"])
    imported = peak_megabytes()
    subject = {"steps": Steps, "epochs": Epochs, "ops": ops}[job["kind"]](engine, **job)
    rank, ranks = getattr(engine, "rank", 0), getattr(engine, "ranks", 1)
    while rank and (count := engine.told(0)):
        subject.steps(count)
    found = subject.parameters
    while not rank:
        peak = {"imported_mb": imported, "peak_mb": peak_megabytes()}
        print(json.dumps({"answer": found, **peak}), file=answers, flush=True)
        what, *arguments = json.loads(sys.stdin.readline() or '["stop"]')
        if ranks > 1:
            engine.told(arguments[0] if arguments else 0)
        if what == "stop":
            break
        found = getattr(subject, what)(*arguments)


if __name__ == "__main__":
    main()
