"""Schedules: the rate of an optimiser from step to step, or from epoch to epoch.

Each writes param_groups[i]["lr"]; call schedule.step() after optimizer.step(). They compute a rate from the
last one, not from the first, so several may act on one optimiser. A schedule's state is a dictionary of JSON
values; that of RestoreBest holds NumPy arrays as well. A MetricLR is stepped with a metric once an epoch.
"""

from .base import LRScheduler
from .curves import ConstantLR, CosineAnnealingLR, ExponentialLR, LambdaLR, LinearLR, MultiStepLR, StepLR
from .metric import MetricLR
from .one_cycle import OneCycleLR
from .plateau import ReduceLROnPlateau
from .restore import RestoreBest
from .sequential import SequentialLR

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MetricLR",
    "MultiStepLR",
    "OneCycleLR",
    "ReduceLROnPlateau",
    "RestoreBest",
    "SequentialLR",
    "StepLR",
]
