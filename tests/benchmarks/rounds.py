"""Contenders as processes that take turns, so that a drift of the machine's speed meets all of them."""

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # would have every process compile all modules again
TURN = 0.1  # seconds: short beside what slows a machine, long beside a step of most networks
LONG = 0.05  # seconds of a step that need none before it to fill caches
LOST = 0.5  # seconds of a step that are too many to be thrown away
FEWEST = 3  # steps of the slowest contender in a set
FALLEN = 0.9  # of the first loss: what shows that a contender learns
WAITED = 0.03  # the share of a step that its threads may wait for a CPU, else the step does not count
PAUSE = 0.03  # seconds between two contenders, for threads of the one that spin before they sleep


class Failed(Exception):
    """A contender cannot run here; the text says why."""


class Worker:
    """A process that trains for one contender. `patience` is how long it may be silent, in seconds."""

    def __init__(self, contender, task, size, threads, patience, **more):
        job = {"contender": contender, "task": asdict(task), "size": size, "threads": threads, **more}
        self.contender, self.patience = contender, patience
        self.complaints = tempfile.TemporaryFile("w+")
        environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
        if contender != "minigrad":
            environment["OMP_NUM_THREADS"] = str(threads)
        self.started, self.late = time.perf_counter(), False
        # A session of its own: Ctrl-C reaches this process alone, which then ends the others.
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def answer(self):
        """What it says next. Failed if it ends, or is silent for too long."""
        timer = threading.Timer(self.patience, self._give_up)
        timer.daemon = True  # an interrupted process does not wait for it
        try:
            timer.start()
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise Failed(f"no answer within {self.patience:g} s" if self.late else self._last_words())
        return json.loads(line)

    def ask(self, *question):
        with contextlib.suppress(BrokenPipeError):  # answer() will say why
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        return self.answer()

    def _give_up(self):
        self.late = True
        self.process.kill()

    def _last_words(self):
        code = self.process.wait()
        self.complaints.seek(0)
        lines = [line for line in self.complaints.read().splitlines() if line.strip()]
        return lines[-1].strip()[:200] if lines else f"exit code {code}"

    def stop(self):
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.complaints):
            with contextlib.suppress(OSError):
                stream.close()


@contextlib.contextmanager
def no_kernels():
    """Processes that start inside find no compiled kernels of minigrad."""
    name = "MINIGRAD_CACHE"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before


@contextlib.contextmanager
def working(starts):
    """Workers by name that have made their first step, and why others have not: ({name: Worker}, {name: reason}).

    starts      {name: a function that starts its Worker}; all start at once, and end with the context
    """
    workers, reasons = {}, {}
    try:
        for name, start in starts.items():
            workers[name] = start()
        for name in list(workers):
            try:
                workers[name].ready = workers[name].answer()
                workers[name].first_step = time.perf_counter() - workers[name].started
            except Failed as why:
                drop(name, why, workers, reasons)
        yield workers, reasons
    finally:
        for worker in workers.values():
            worker.stop()


def in_turn(workers, reasons, question, seconds, fewest):
    """{name: turns} of workers that take turns: a turn is rows (seconds, seconds waited or None), and has TURN seconds.

    question    what to ask a Worker for `count` rows: question(count)
    Rounds go on until each has rows of `seconds` in all, and fewest[name] of them. The turn of one that has them is
    [], so the turns at one place are of one round. A turn of short rows begins with one that does not count, as caches
    were just another's. One that fails is dropped, with its reason.
    """
    turns = {name: [] for name in workers}

    def taken(name, count, uncounted=0):
        time.sleep(PAUSE)
        try:
            return workers[name].ask(*question(uncounted + count))[uncounted:]
        except Failed as why:
            drop(name, why, workers, reasons)
            del turns[name]
            return []

    lengths = _tried(taken, turns, list(workers))
    while short := {name for name in workers if _is_short(turns[name], seconds, fewest[name])}:
        for name in list(workers):
            length = lengths[name]
            rows = taken(name, max(1, round(TURN / length)), length < LONG) if name in short else []
            if name in workers:
                turns[name].append(rows)
            if rows:  # what was tried may have been disturbed
                lengths[name] = min(length, statistics.median(length for length, _ in rows))
    return turns


def _tried(taken, turns, names):
    """How long a row of each takes. What was measured for it becomes a first turn if all are too long to lose it."""
    found = {name: rows for name in names if (rows := taken(name, 1))}
    lengths = {name: rows[0][0] for name, rows in found.items()}
    if min(lengths.values(), default=0) > LOST:
        turns |= {name: [rows] for name, rows in found.items()}
    for name, length in list(lengths.items()):
        if length < TURN and (rows := taken(name, 3)):
            lengths[name] = statistics.median(length for length, _ in rows)
    return lengths


def _is_short(turns, seconds, fewest):
    rows = [row for turn in turns for row in turn]
    return sum(length for length, _ in rows) < seconds or len(rows) < fewest


def in_sets(starts, measured, processes, once=()):
    """[{name: turns}] of so many sets of fresh processes, and why others are absent: {name: reason}.

    starts      as of `working`
    measured    {name: turns} of the workers of a set: measured(workers, reasons)
    once        whose start is dear: they are in the first set alone
    All must have learned in the first set; the later ones do the same. One that fails, but for `once`, ends it all.
    """
    sets, reasons = [], {}
    for number in range(processes):
        chosen = {name: start for name, start in starts.items() if number == 0 or name not in once}
        with working(chosen) as (workers, failed):
            turns = measured(workers, failed)
            if number == 0:
                ended(workers, failed)
            sets.append({name: turns[name] for name in workers})
        reasons |= failed
        if failed.keys() - set(once):
            break
    return sets, reasons


def drop(name, why, workers, reasons):
    """End a worker and keep the reason."""
    reasons[name] = str(why)
    workers.pop(name).stop()


def ended(workers, reasons):
    """{name: what it says at its end}, after a look at its losses; one that has not learned is dropped."""
    found = {}
    for name, worker in list(workers.items()):
        try:
            found[name] = worker.ask("end")
            check_learning(**{key: found[name].pop(key) for key in ("losses", "finite")})
        except Failed as why:
            drop(name, why, workers, reasons)
            found.pop(name, None)
    return found


def check_learning(losses, finite):
    """Raise Failed unless all losses are finite, and the last of losses is clearly below the first."""
    first, last = losses
    if not finite or not math.isfinite(last):
        raise Failed("its loss is not finite")
    if not last < FALLEN * first:
        raise Failed(f"its loss does not fall: {first:.4f} at first, {last:.4f} at last")


def summary(rows):
    """The median of clean steps in ms, how many there are, and of how many.

    A step is clean if its threads waited for a CPU during less than WAITED of it. Where nothing is known of that, or
    fewer than FEWEST are clean, all count; `clean` says so.
    """
    clean = _clean(rows)
    counted = clean if len(clean) >= FEWEST else [length for length, _ in rows]
    return {"ms": round(1000 * statistics.median(counted), 3), "steps": len(rows), "clean": len(clean)}


def _clean(rows):
    return [length for length, waited in rows if waited is None or waited < WAITED * length]


def paired(sets, name, to="minigrad"):
    """How many times as long as the other's a contender's row was in each round: a list for each set, {name: turns}.

    A turn stands for the median of its clean rows, and rounds count where both have such; what slows the machine for
    longer than a round does so for both. If there are fewer than FEWEST of them in all, all rows of all rounds count. A
    set without any has no list.
    """

    def ratios(turns, counted):
        both = [(counted(mine), counted(others)) for mine, others in zip(turns[name], turns[to], strict=True)]
        return [statistics.median(mine) / statistics.median(others) for mine, others in both if mine and others]

    found = [ratios(turns, _clean) for turns in sets]
    if sum(map(len, found)) < FEWEST:
        found = [ratios(turns, lambda rows: [length for length, _ in rows]) for turns in sets]
    return [each for each in found if each]
