"""A process that trains for one contender of cpu.py: python tests/benchmarks/worker.py JOB

JOB, in JSON: contender, task, size, threads, and for epochs workers. It answers each line of standard input, which is
["steps", how many], ["epochs", how many, at most so many batches of each or None] or ["end"], with a line of JSON; and
once at the start, when the first step is done.
"""

import contextlib
import json
import math
import os
import re
import resource
import sys
import time
from pathlib import Path

from engines import ENGINES
from rounds import FALLEN
from tasks import Task, epoch_data

THREADS, STATUS = Path("/proc/self/task"), Path("/proc/self/status")
PROOF_STEPS, PROOF_SECONDS = 1000, 20  # that it may take for it, behind the measured ones


def waited():
    """Seconds that the threads of this process have waited for a CPU since they began; None where none knows."""
    found = None
    try:
        for thread in os.listdir(THREADS):
            try:
                found = (found or 0) + int((THREADS / thread / "schedstat").read_text().split()[1])
            except (ProcessLookupError, FileNotFoundError):
                continue  # it has ended, or the system keeps no such figures
    except OSError:
        pass
    return None if found is None else found / 1e9


def peak_megabytes():
    """The most memory that this program had at once.

    On Linux ru_maxrss begins with what the process had that started this one, so it is asked only elsewhere.
    """
    with contextlib.suppress(OSError):
        if found := re.search(r"^VmHWM:\s*(\d+) kB$", STATUS.read_text(), re.MULTILINE):
            return round(int(found[1]) / (1 << 10), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def measured(call):
    """(what it returns, seconds, seconds that threads waited meanwhile or None)."""
    before, start = waited(), time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    after = waited()
    return result, seconds, None if before is None or after is None else max(0.0, after - before)


class Steps:
    """Answers about single steps."""

    def __init__(self, engine, task, size):
        self.step, self.parameters = engine.training(task, size)
        self.losses, self.number = [self.step(0).item()], 1

    def first(self):
        return {"parameters": self.parameters}

    def steps(self, count):
        rows = []
        for _ in range(count):
            loss, *row = measured(lambda: self.step(self.number))
            self.losses.append(float(loss.item()))
            self.number += 1
            rows.append(row)
        return rows

    def end(self):
        """Train on the first batch until its loss is clearly below what it was, if ever."""
        last, start = self.step(0).item(), time.perf_counter()
        for _ in range(PROOF_STEPS):
            if last < FALLEN * self.losses[0] or time.perf_counter() - start > PROOF_SECONDS:
                break
            last = self.step(0).item()
        return {"losses": [self.losses[0], last], "finite": all(map(math.isfinite, self.losses))}


class Epochs:
    """Answers about epochs of a data set, with the loader of the library."""

    def __init__(self, engine, task, size):
        images, labels = epoch_data()
        self.epoch, self.losses = engine.epochs(task, size, images, labels), []
        self.epochs(1, 3)

    def first(self):
        return {}

    def epochs(self, count, most=None):
        rows = []
        for _ in range(count):
            losses, *row = measured(lambda: self.epoch(most))
            self.losses += losses
            rows.append(row)
        return rows

    def end(self):
        return {"losses": [self.losses[0], self.losses[-1]], "finite": all(map(math.isfinite, self.losses))}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    job = json.loads(sys.argv[1])
    begun = time.perf_counter()
    engine = ENGINES[job["contender"]](job["threads"], job.get("workers", 0))
    imported = peak_megabytes()
    kind = Epochs if "workers" in job else Steps
    training = kind(engine, Task(**job["task"]), job["size"])
    answer = {**training.first(), "ready_seconds": time.perf_counter() - begun}
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        what, *arguments = json.loads(sys.stdin.readline() or '["stop"]')
        if what == "stop":
            return
        answer = getattr(training, what)(*arguments)
        if what == "end":
            answer |= {"imported_mb": imported, "peak_mb": peak_megabytes()}


if __name__ == "__main__":
    main()
