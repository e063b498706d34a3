"""Times on the device: medians of calls that take turns, so that a drift of the clock meets all of them."""

import statistics
import time

import cupy
import numpy as np

FILL = 1 << 31  # bytes that are filled to keep the device busy: about half a millisecond each time
MOST_FILLS = 63
MOST_CALLS = 200  # between two events: the driver's queue holds about a thousand launches
FIRST = 5  # calls of a step until its kernels are compiled and captured
_rng = np.random.default_rng(0)


def random(*shape):
    """Normal numbers of float32 on the device."""
    return cupy.asarray(_rng.standard_normal(shape, dtype=np.float32))


def space(nbytes, like):
    """A workspace for kernels."""
    return cupy.empty(nbytes, cupy.uint8)


# ---- by events: what a short kernel takes, whatever the host takes to submit it --------------------------------------


def _once(call, repeats, fills, memory):
    """(milliseconds of one call, whether the host was late), from events around several.

    fills keep the device busy while the host submits.
    """
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(fills):
        memory.fill(0)
    begin.record()
    for _ in range(repeats):
        call()
    late = begin.done
    end.record()
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end) / repeats, late


def _settings(call, share, memory):
    """(calls between two events, fills before them) that take about `share` milliseconds."""
    for _ in range(3):
        call()
    milliseconds, _ = _once(call, 3, 0, memory)
    repeats, fills, late = max(1, min(MOST_CALLS, int(share / max(milliseconds, 1e-3)))), 0, True
    while late and fills < MOST_FILLS:
        fills = 2 * fills + 1
        _, late = _once(call, repeats, fills, memory)
    return repeats, fills


def medians(calls, rounds=11, budget=0.5):
    """{name: (median milliseconds, spread)} of calls, by name; the spread is (highest - lowest) / median of the middle
    half. budget: seconds for each call in all."""
    memory = cupy.empty(FILL, cupy.uint8)
    settings = {name: _settings(call, 1000 * budget / rounds, memory) for name, call in calls.items()}
    turns = [{name: _once(call, *settings[name], memory)[0] for name, call in calls.items()} for _ in range(rounds)]
    found = {}
    for name in calls:
        low, middle, high = statistics.quantiles((turn[name] for turn in turns), n=4, method="inclusive")
        found[name] = middle, (high - low) / middle
    return found


# ---- by the clock of the host: whole steps ---------------------------------------------------------------------------


def _lasted(step, count):
    """Seconds of a step(number), from so many."""
    cupy.cuda.Device().synchronize()
    begun = time.perf_counter()
    for number in range(count):
        step(number)
    cupy.cuda.Device().synchronize()
    return (time.perf_counter() - begun) / count


def in_turns(steps, rounds=11, seconds=0.05):
    """{name: seconds} of a step(number): the median over rounds, each of as many steps as take so long."""
    counts = {}
    for name, step in steps.items():
        _lasted(step, FIRST)
        counts[name] = max(1, int(seconds / _lasted(step, FIRST)))
    turns = [{name: _lasted(step, counts[name]) for name, step in steps.items()} for _ in range(rounds)]
    return {name: statistics.median(turn[name] for turn in turns) for name in steps}
