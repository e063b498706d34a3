"""Update rules, schedules of their rates, and clipping of gradients, under PyTorch's names."""

from . import lr_scheduler
from .clip import clip_grad_norm_, clip_grad_value_
from .optimizer import Optimizer
from .rules import SGD, Adadelta, Adagrad, Adam, AdamW, Muon, RMSprop

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Muon",
    "Optimizer",
    "RMSprop",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
]
