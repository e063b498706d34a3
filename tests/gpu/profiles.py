"""Profiles of training on the device: the device's time by marks beside that of events around the whole, and memory."""

import cupy

from minigrad import Tensor, models, optim
from minigrad.nn import functional as F
from minigrad.profile import Profile
from tests.benchmarks import tasks

NETWORK, BATCH, WARMING, STEPS = "keras-cnn", 512, 5, 10
LONGER = 1.02  # times the span of two events that lie around all others: their own precision


def recorded():
    """(model, profile of some steps, seconds between an event before and one after them)."""
    model = models.build(NETWORK, tasks.SHAPES[NETWORK]).to("cuda")
    optimizer = optim.Adam(model.parameters())
    data = [tuple(Tensor(array).to("cuda") for array in batch) for batch in tasks.batches(NETWORK, BATCH, 1)]
    step = tasks.step_of(model, optimizer, F.cross_entropy, data)
    for number in range(WARMING):
        step(number)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    with Profile(model, optimizer=optimizer) as profile:
        begin.record()
        for number in range(STEPS):
            step(number)
        end.record()
    return model, profile, cupy.cuda.get_elapsed_time(begin, end) / 1000


def faults(model, profile, seconds):
    """What is wrong with a profile, in words."""
    total = profile.totals()
    own = sum(row.device for row in profile.rows("op"))
    parameters = sum(parameter.array.nbytes for parameter in model.parameters())
    calls = [span for span in profile.spans if span.kind in ("forward", "backward", "update")]
    lengths = [span.device[1] - span.device[0] for span in calls if span.device]
    wrong = {
        "a call has no device time": len(lengths) < len(calls) or min(lengths, default=0) <= 0,
        "the device was busy longer than the steps took": not 0 < total["device"] <= LONGER * seconds,
        "the calls add up to more than the whole": own > LONGER * seconds,
        "parameters": {sample["parameters"] for _, sample in profile.memory} != {parameters},
        "activations are left": profile.memory[-1][1]["activations"] != 0,
    }
    return [name for name, found in wrong.items() if found]


def profiles(found):
    model, profile, seconds = recorded()
    found |= {"network": NETWORK, "batch": BATCH, "steps": STEPS, "seconds_between_events": seconds}
    found["totals"] = {name: round(value, 6) for name, value in profile.totals().items()}
    found["peak_bytes"] = profile.peak()[0]
    found["device_milliseconds"] = {row.name: round(1e3 * row.device, 4) for row in profile.rows("op")}
    print(profile.table("op"), profile.table("layer"), sep="\n\n", flush=True)
    found["wrong"] = faults(model, profile, seconds)
    found["failed"] = bool(found["wrong"])
