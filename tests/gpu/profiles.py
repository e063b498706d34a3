"""A profile of training on the device: the device's time by marks beside that of events around the whole."""

import cupy

from minigrad import Tensor, models, optim
from minigrad.nn import functional as F
from minigrad.profile import Profile
from tests.benchmarks import tasks

NETWORK, BATCH, WARMING, STEPS = "keras-cnn", 512, 5, 10
LONGER = 1.02  # times the span of two events that lie around all others: their own precision


def profiles(found):
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
    seconds, totals = cupy.cuda.get_elapsed_time(begin, end) / 1000, profile.totals()
    found |= {"network": NETWORK, "batch": BATCH, "steps": STEPS, "seconds_between_events": seconds, "totals": totals}
    found["device_milliseconds"] = {row.name: round(1e3 * row.device, 4) for row in profile.rows("op")}
    print(profile.table("op"), profile.table("layer"), sep="\n\n", flush=True)
    spans = [span.device for span in profile.spans if span.kind in ("forward", "backward", "update")]
    known = all(span and span[0] < span[1] for span in spans)
    own = sum(row.device for row in profile.rows("op"))
    found["failed"] = not (known and 0 < totals["device"] <= LONGER * seconds and own <= LONGER * seconds)
