"""How data-parallel training will scale: a model, not a measurement.

Networks (measured.py: our own; stated.py: well-known ones) on fabrics (fabrics.py): the time of an exchange
(exchange.py), of a step whose exchanges run beside backward (timeline.py), and the memory of a GPU (memory.py).
"""

from .exchange import all_reduce_seconds, half_seconds
from .fabrics import FABRICS, Fabric, fabric
from .memory import STATES, Memory, memory_of
from .network import Layer, Network, assembled, check_known
from .stated import STATED, stated
from .timeline import WIRES, Plan, Step, best_bucket, predicted, simulated, slowest

__all__ = [
    "FABRICS",
    "NETWORKS",
    "STATES",
    "WIRES",
    "Fabric",
    "Layer",
    "Memory",
    "Network",
    "Plan",
    "Step",
    "all_reduce_seconds",
    "assembled",
    "best_bucket",
    "check_known",
    "fabric",
    "half_seconds",
    "memory_of",
    "network",
    "predicted",
    "simulated",
    "slowest",
    "step_seconds",
]

OWN = ("keras-cnn", "lenet", "mnist-net", "resnet")
NETWORKS = (*OWN, *STATED)


def network(name):
    """A Network by its name: of minigrad.models, run once on the CPU, or one of the well-known ones.

    Errors  ValueError for an unknown name
    """
    check_known("network", name, NETWORKS)
    if name in STATED:
        return stated(name)
    from .measured import own  # makes the model, which wants compiled kernels

    return own(name)


def step_seconds(name, batch):
    """Seconds of a training step of one of OWN on this CPU, for a batch of so many images."""
    from .measured import step_seconds

    return step_seconds(name, batch)
