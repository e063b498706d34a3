"""Update rules, schedules of their rates, and clipping of gradients, under PyTorch's names."""

from . import lr_scheduler, rules
from .clip import clip_grad_norm_, clip_grad_value_
from .optimizer import Optimizer
from .rules import *

__all__ = ["Optimizer", "clip_grad_norm_", "clip_grad_value_", "lr_scheduler"]
__all__ += rules.__all__
