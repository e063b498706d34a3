"""How long an all-reduce takes: a latency that grows with the number of steps, and bytes over bandwidth.

NCCL knows several algorithms, each with three protocols, reckons the time of each as here, and takes the least:

    ring    2 (n - 1) steps around all GPUs; each sends 2 (n - 1) / n of the bytes: best for large arrays
    tree    down and up a tree of machines, along a chain inside each: few steps, but 2 times the bytes on a link
    NVLS    the NVLink switch adds; between machines a tree of them
    LL      every 8 bytes carry a flag of 4 bytes: least latency, half the bandwidth
    LL128   120 of 128 bytes are data; wants NVLink
    Simple  large chunks behind one flag: all the bandwidth, most latency

Math    t = base + steps latency + factor bytes / bandwidth; the least over algorithms and protocols
Units   seconds, bytes, bytes a second
Source  NVIDIA, NCCL 2.28, src/graph/tuning.cc: the constants and formulas of ncclTopoTuneModel, without its
        corrections by GPU, processor and number of channels; Hockney 1994, "The communication challenge for MPP"
        (latency and bandwidth); Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms" (the ring)
"""

import math

from minigrad_kernels.errors import ShapeError

__all__ = ["all_reduce_seconds", "half_seconds"]

MICROSECOND = 1e-6
# Microseconds of LL, LL128, Simple.
BASE = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}
STEP = {
    "nvlink": {"ring": (0.6, 1.9, 3.4), "tree": (0.6, 1.25, 4.0)},
    "pcie": {"ring": (1.0, 2.5, 5.7), "tree": (1.0, 1.9, 4.0)},
    "network": {"ring": (2.7, 4.0, 14.0), "tree": (5.0, 8.5, 14.0)},
}
SWITCH, BETWEEN_SWITCHES = 25.0, 14.0  # NVLS inside a machine, and each level of its tree between machines
# The share of the bandwidth that a protocol leaves for data.
RING_SHARE = (0.5, 0.92, 1.0)
TREE_SHARE = (0.92 / 3.8, 0.92 * 120 / 128, 0.92)
SIMPLE = 2


def all_reduce_seconds(nbytes, gpus, fabric):
    """Seconds until every one of `gpus` GPUs has the sum of their arrays of `nbytes` bytes; 0 on one GPU.

    Errors  ValueError for a negative number of bytes, or fewer than 1 GPU
    """
    if nbytes < 0 or gpus < 1:
        raise ShapeError(f"all_reduce_seconds: got {nbytes} bytes on {gpus} GPUs, want at least 0 bytes and 1 GPU")
    if gpus == 1:
        return 0.0
    protocols = (0, 1, SIMPLE) if fabric.links == "nvlink" else (0, SIMPLE)
    found = [time(nbytes, gpus, fabric, protocol) for time in (_ring, _tree) for protocol in protocols]
    if fabric.switched:
        found.append(_switched(nbytes, gpus, fabric))
    return fabric.launch + min(found)


def half_seconds(nbytes, gpus, fabric):
    """Seconds of a reduce-scatter, or of an all-gather, of an array of so many bytes on all GPUs together.

    Each is one of the two halves of a ring all-reduce; taken as half of the best all-reduce.
    """
    return all_reduce_seconds(nbytes, gpus, fabric) / 2


def _bandwidth(gpus, fabric):
    """Of the narrowest link that all bytes pass."""
    if fabric.machines(gpus) == 1:
        return fabric.inside
    return fabric.between if fabric.gpus == 1 else min(fabric.inside, fabric.between)


def _network_latency(fabric, kind, protocol):
    """Seconds of a step between machines; Simple waits for the data and for their flag."""
    return STEP["network"][kind][protocol] * MICROSECOND + fabric.latency * (2 if protocol == SIMPLE else 1)


def _ring(nbytes, gpus, fabric, protocol):
    """Math    t = base + (2 (n - 1) - 2 (m - 1)) inside + 2 (m - 1) network + 2 (n - 1) / n bytes / bandwidth

    on n GPUs of m machines.
    """
    machines = fabric.machines(gpus)
    steps, crossing = 2 * (gpus - 1), 2 * (machines - 1)
    inside = STEP[fabric.links]["ring"][protocol] * MICROSECOND
    if machines > 1:  # the slowest machine hands on a message at every step
        inside = max(inside, fabric.post * (3 if protocol == SIMPLE else 1))
    # With one GPU a machine nothing hides the latency of a message, so NCCL takes that of the tree.
    network = _network_latency(fabric, "tree" if fabric.gpus == 1 else "ring", protocol)
    latency = BASE["ring"][protocol] * MICROSECOND + (steps - crossing) * inside + crossing * network
    return latency + nbytes * steps / gpus / (_bandwidth(gpus, fabric) * RING_SHARE[protocol])


def _tree(nbytes, gpus, fabric, protocol):
    """Math    t = base + 2 (k - 1) inside + 2 log2(m) network + 2 bytes / bandwidth

    on m machines of k GPUs.
    """
    machines = fabric.machines(gpus)
    inside = STEP[fabric.links]["tree"][protocol] * MICROSECOND
    network = _network_latency(fabric, "tree", protocol)
    steps = min(gpus, fabric.gpus) - 1
    latency = BASE["tree"][protocol] * MICROSECOND + 2 * (steps * inside + math.log2(machines) * network)
    return latency + 2 * nbytes / (_bandwidth(gpus, fabric) * TREE_SHARE[protocol])


def _switched(nbytes, gpus, fabric):
    """Math    t = switch + 2 log2(m) network + 2 (n - 1) / n bytes / bandwidth"""
    machines = fabric.machines(gpus)
    latency = (SWITCH + 2 * math.log2(machines) * BETWEEN_SWITCHES) * MICROSECOND
    bandwidth = fabric.switched if machines == 1 else min(fabric.switched, fabric.between)
    return latency + nbytes * 2 * (gpus - 1) / gpus / bandwidth
