"""Contenders as processes that take turns, so that a drift of the machine's speed meets all of them."""

import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # would have every process compile all modules again
TURN = 0.1  # seconds: short beside what slows a machine, long beside a step of most networks
LONG = 0.05  # seconds of a step that need none before it to fill caches
FEWEST = 2  # turns of the slowest contender in a set
PAUSE = 0.03  # seconds between two contenders, for threads of the one that spin before they sleep
PATIENCE = 600  # seconds of silence


class Failed(Exception):
    """A contender cannot run here; the text says why."""


class Worker:
    """A process of worker.py. `patience` is how long it may be silent, in seconds; `ranks`, how many MPI starts.

    parameters              how many its network has
    first_step              seconds from its start to the end of its first step
    imported_mb, peak_mb    its most memory in MB, when its library was imported and until it said something last
    """

    def __init__(self, contender, threads, patience=PATIENCE, ranks=None, environment=(), **job):
        self.patience, self.complaints, self.started = patience, tempfile.TemporaryFile("w+"), time.perf_counter()
        command = [sys.executable, str(WORKER), json.dumps({"contender": contender, "threads": threads, **job})]
        if ranks:
            command[:0] = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)]
        settings = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
        settings |= {} if contender == "minigrad" else {"OMP_NUM_THREADS": str(threads)}
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.complaints}
        # A session of its own: Ctrl-C reaches this process alone, which then ends the others.
        options = {"env": settings | dict(environment), "text": True, "start_new_session": True}
        self.process = subprocess.Popen(command, **streams, **options)

    def begin(self):
        """Wait for its first step."""
        self.parameters = self._answer()
        self.first_step = time.perf_counter() - self.started

    def ask(self, *question):
        """What a method of it returns; Failed if it ends, or is silent for too long."""
        with contextlib.suppress(BrokenPipeError):  # its last words say why
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            raise Failed(f"no answer within {self.patience:g} s")
        if not (line := self.process.stdout.readline()):
            code = self.process.wait()
            self.complaints.seek(0)
            lines = [line for line in self.complaints.read().splitlines() if line.strip()]
            raise Failed(lines[-1].strip()[:200] if lines else f"exit code {code}")
        answer = json.loads(line)
        self.imported_mb, self.peak_mb = answer["imported_mb"], answer["peak_mb"]
        return answer["answer"]

    def stop(self):
        """End the process: ranks by themselves, which end together."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.process.stdin.close()
            self.process.wait(2)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.complaints.close()


class Contenders(dict):
    """Workers by name that have made their first step, {name: Worker}: a context, with which they end.

    jobs        {name: the arguments of its Worker}; all start at once
    reasons     {name: why it is not among them}
    """

    def __init__(self, jobs):
        super().__init__()
        self.jobs, self.reasons = jobs, {}

    def __enter__(self):
        self.update((name, Worker(**job)) for name, job in self.jobs.items())
        for name in self.jobs:
            self.tried(name, Worker.begin)
        return self

    def __exit__(self, *error):
        for worker in self.values():
            worker.stop()

    def tried(self, name, act):
        """act(Worker); None for one that fails, which is dropped, or is not there."""
        try:
            return act(self[name]) if name in self else None
        except Failed as why:
            self.reasons[name] = str(why)
            self.pop(name).stop()


def in_turn(contenders, seconds, turn=TURN):
    """{name: turns} of contenders that take turns.

    A turn is the seconds of steps, as many as `turn` has room for. Rounds go on until each contender has steps of
    `seconds` in all, and FEWEST turns. A turn of short steps begins with one that does not count, as caches were just
    another's. One that fails is dropped.
    """

    def taken(name, count):
        time.sleep(PAUSE)
        return contenders.tried(name, lambda worker: worker.ask("steps", count))

    lengths = {name: steps[0] for name in list(contenders) if (steps := taken(name, 1))}
    turns = {name: [] for name in contenders}
    while any(sum(map(sum, turns[name])) < seconds or len(turns[name]) < FEWEST for name in contenders):
        for name in list(contenders):
            uncounted = int(lengths[name] < LONG)
            if steps := taken(name, uncounted + max(1, round(turn / lengths[name]))):
                turns[name].append(steps[uncounted:])  # what came before may have been disturbed:
                lengths[name] = min(lengths[name], statistics.median(steps))
    return {name: turns[name] for name in contenders}


def in_sets(jobs, seconds, sets=1, once=()):
    """([{name: turns} of so many sets of fresh processes], {name: why it is absent}).

    once        whose start is dear: they are in the first set alone
    All must learn in the first set; the later ones do the same. Failed if one fails that is not in `once`, or if they
    do not train the same number of parameters.
    """
    found, reasons = [], {}
    for number in range(sets):
        with Contenders({name: job for name, job in jobs.items() if not number or name not in once}) as contenders:
            parameters = {name: worker.parameters for name, worker in contenders.items()}
            if len(set(parameters.values())) > 1:
                raise Failed(f"not the same network: parameters {parameters}")
            turns = in_turn(contenders, seconds / sets)
            for name in list(contenders) if not number else ():
                contenders.tried(name, lambda worker: worker.ask("end"))
            found.append({name: turns[name] for name in contenders})
        reasons |= contenders.reasons
        if broken := [f"{name}: {why}" for name, why in reasons.items() if name not in once]:
            raise Failed("; ".join(broken))
    return found, reasons


def milliseconds(turns):
    """The median step of turns."""
    return round(1000 * statistics.median(sum(turns, [])), 3)


def paired(turns, name, to="minigrad"):
    """How many times as long as the other's a contender's median step was in each round of {name: turns}.

    What slows the machine for longer than a round does so for both.
    """
    both = zip(turns[name], turns[to], strict=True)
    return [statistics.median(mine) / statistics.median(others) for mine, others in both]
