"""Layers, losses and initialisers under PyTorch's names."""

from . import functional, init
from .activation import Dropout, LogSoftmax, ReLU, Sigmoid, Softmax, Tanh
from .container import Flatten, Identity, Sequential
from .conv import Conv2d
from .linear import Linear
from .loss import CrossEntropyLoss, MSELoss, NLLLoss
from .module import Module
from .norm import BatchNorm2d
from .parameter import Parameter
from .pool import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from .summary import summary

__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Identity",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "functional",
    "init",
    "summary",
]
