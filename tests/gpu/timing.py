"""Times on the device: medians of events, contenders taking turns so that a drift of the clock meets all of them.

The device is kept busy while the host submits, so that times of short kernels are theirs and not those of the host.
"""

import statistics
import time

import cupy
import numpy as np

__all__ = ["host_microseconds", "in_turns", "medians", "random"]

FILL = 1 << 31  # bytes that are filled to keep the device busy: about half a millisecond each time
MOST_FILLS = 63
MOST_CALLS = 200  # between two events: the driver's queue holds about a thousand launches
_rng = np.random.default_rng(0)


def random(*shape):
    """Normal numbers of float32 on the device."""
    return cupy.asarray(_rng.standard_normal(shape, dtype=np.float32))


def _once(call, repeats, fills, memory):
    """(milliseconds of one call, whether the host was late), from events around several."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(fills):
        memory.data.memset_async(0, memory.nbytes)
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
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(_once(call, *settings[name], memory)[0])
    found = {}
    for name, all_times in times.items():
        quarters = statistics.quantiles(all_times, n=4)
        found[name] = statistics.median(all_times), (quarters[2] - quarters[0]) / statistics.median(all_times)
    return found


def in_turns(steps, rounds, burst):
    """{name: seconds} of a step(number) with the wait for the device, so many at a time: the median over rounds."""
    times = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            cupy.cuda.Device().synchronize()
            begun = time.perf_counter()
            for number in range(burst):
                step(number)
            cupy.cuda.Device().synchronize()
            times[name].append((time.perf_counter() - begun) / burst)
    return {name: statistics.median(values[1:] or values) for name, values in times.items()}


def host_microseconds(call, count=500, rounds=7):
    """What one call costs the host, the device being free to lag behind: the median over rounds."""
    times = []
    for _ in range(rounds):
        cupy.cuda.Device().synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - begun) / count)
    cupy.cuda.Device().synchronize()
    return 1e6 * statistics.median(times)
