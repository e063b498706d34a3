"""Whole networks beside PyTorch on the same GPU, eagerly and as graphs: images a second and memory."""

import gc
import statistics
import time

from cupy.cuda import runtime

from minigrad import device

from .contenders import CONTENDERS, PRECISIONS

BATCHES = {"keras-cnn": (64, 128, 512, 2048), "lenet": (64, 128, 512, 2048), "mnist-net": (64, 128, 512, 2048)}
BATCHES["resnet"] = (64, 128, 512, 2048)
INFERENCE = (1, 512)
ROUNDS, SECONDS = 5, 0.05  # for each contender
BURST = 5  # calls between two looks at the clock


def timed(call, wait, seconds):
    """Seconds of one call, from as many as take so long."""
    wait()
    begun, count = time.perf_counter(), 0
    while not count or time.perf_counter() - begun < seconds:
        for _ in range(BURST):
            call(count)
            count += 1
        if count % (10 * BURST) == 0:  # the device lags behind, but not by much
            wait()
    wait()
    return (time.perf_counter() - begun) / count


def _free():
    """Bytes of the GPU's memory that are free once nothing that is not needed is held."""
    gc.collect()
    device.empty_cache()
    _empty_torch()
    return runtime.memGetInfo()[0]


def _empty_torch():
    try:
        import torch
    except ImportError:  # without it minigrad can still be measured
        return
    torch.cuda.empty_cache()


def _prepared(make, name, task, size, precision):
    """(call, wait, bytes that it took from the GPU) of a contender whose kernels are compiled, chosen and loaded."""
    free = _free()
    contender = make(name, size, precision)
    contender.network.train(task == "train")
    call = contender.step if task == "train" else contender.infer
    timed(call, contender.wait, SECONDS)
    return call, contender.wait, free - runtime.memGetInfo()[0]


def compared(makers, name, task, size, precision):
    """The row of contenders {name: make} that take turns: medians over rounds; absent: those that failed, and why."""
    calls, absent = {}, {}
    for contender, make in makers.items():
        try:
            calls[contender] = _prepared(make, name, task, size, precision)
        except Exception as error:  # of a peer, or of memory; what there is, is compared
            absent[contender] = f"{type(error).__name__}: {error}"[:200]
    times = {contender: [] for contender in calls}
    for _ in range(ROUNDS):
        for contender, (call, wait, _) in calls.items():
            times[contender].append(timed(call, wait, SECONDS))
    row = {"network": name, "task": task, "batch": size, "precision": precision}
    row["images_per_second"] = {c: round(size / statistics.median(values), 1) for c, values in times.items()}
    row["bytes"] = {contender: taken for contender, (_, _, taken) in calls.items()}
    return row | ratios(row["images_per_second"]) | ({"absent": absent} if absent else {})


def ratios(rates):
    """How many times as fast minigrad is as PyTorch's faster layout, run in the same way and in another."""
    found = {}
    for ours, theirs in (("", ""), (", graph", ""), (", graph", " graph"), (", graph", " compiled")):
        layouts = [f"torch{theirs} {layout}" for layout in ("NCHW", "NHWC")]
        best = max((rates[layout] for layout in layouts if layout in rates), default=None)
        if f"minigrad{ours}" in rates and best:
            found[f"minigrad{ours} / torch{theirs}"] = round(rates[f"minigrad{ours}"] / best, 3)
    return {"ratios": found}


def cases():
    """(network, task, batch, precision), those that the goals name first."""
    sizes = sorted({size for many in BATCHES.values() for size in many})
    for size in sizes:
        for name in BATCHES:
            if size in BATCHES[name]:
                yield from ((name, "train", size, precision) for precision in PRECISIONS)
    yield from ((name, "infer", size, "float32") for name in BATCHES for size in INFERENCE)


def run(found):
    found["rows"] = rows = []
    for case in cases():
        rows.append(compared(CONTENDERS, *case))
        print(f"  {rows[-1]}", flush=True)
    found["failed"] = any(lacking(row) for row in rows)


def lacking(row):
    """Those of minigrad's that failed."""
    return [name for name in row.get("absent", ()) if name.startswith("minigrad")]
