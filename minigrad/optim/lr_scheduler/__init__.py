"""Schedules: the rate of an optimiser from step to step, or from epoch to epoch.

Each writes param_groups[i]["lr"]; call schedule.step() after optimizer.step(). They compute a rate from the
last one, not from the first, so several may act on one optimiser. A schedule's state is a dictionary of JSON
values.
"""

from .base import LRScheduler
from .curves import CosineAnnealingLR, LambdaLR, LinearLR, StepLR
from .one_cycle import OneCycleLR
from .plateau import ReduceLROnPlateau
from .sequential import SequentialLR

__all__ = [
    "CosineAnnealingLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "OneCycleLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
