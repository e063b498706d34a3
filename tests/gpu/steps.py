"""Training steps of whole networks on the device: the same bits twice, losses near those of the CPU."""

import numpy as np

from .graphs import trained

BATCHES = {"keras-cnn": 64, "resnet": 16}
STEPS = 3
NEAR = 1e-3  # of a loss, after steps that magnify what is rounded in another order


def compared(name, size, place="cuda:0"):
    first, again, (wanted, _, _) = (
        trained(name, size, where, lambda step: step, steps=STEPS) for where in (place, place, "cpu")
    )
    off = float(np.abs(np.array(first[0]) / wanted - 1).max())
    row = {"network": name, "batch": size, "same_bits_twice": first[:2] == again[:2], "loss_off": off}
    return row | {"failed": not (row["same_bits_twice"] and off < NEAR)}


def run(found):
    found["networks"] = rows = []
    for name, size in BATCHES.items():
        rows.append(compared(name, size))
        print(f"  {rows[-1]}", flush=True)
    found["failed"] = any(row["failed"] for row in rows)
