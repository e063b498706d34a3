"""Times on the device: medians of events, contenders taking turns so that a drift of the clock meets all of them."""

import statistics
import time

import cupy

__all__ = ["host_microseconds", "medians"]


def _once(call, repeats):
    """Milliseconds of one call, from events around several."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end) / repeats


def medians(calls, rounds=11, budget=0.5):
    """{name: (median milliseconds, spread)} of calls, by name; the spread is (highest - lowest) / median of the middle
    half. budget: seconds for each call in all."""
    repeats = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        repeats[name] = max(1, min(1000, int(1000 * budget / rounds / max(_once(call, 3), 1e-3))))
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(_once(call, repeats[name]))
    found = {}
    for name, all_times in times.items():
        quarters = statistics.quantiles(all_times, n=4)
        found[name] = statistics.median(all_times), (quarters[2] - quarters[0]) / statistics.median(all_times)
    return found


def host_microseconds(call, count=2000, rounds=7):
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
