"""Schedules: the rate of an optimiser from step to step, or from epoch to epoch.

Each writes param_groups[i]["lr"]; call schedule.step() after optimizer.step(). Each is a function of the
epoch; several may act on one optimiser, and their factors multiply. A schedule's state is a dictionary of JSON
values; that of RestoreBest holds NumPy arrays as well. A MetricLR is stepped with a metric once an epoch.
"""

from .base import LRScheduler
from .curves import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)
from .metric import MetricLR, ReduceLROnPlateau, RestoreBest

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
