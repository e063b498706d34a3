"""The rows that drive the tests of the ops: one file for each family, one Op for each public op.

A sample says how to call an op; `draw` turns its Draws into arrays. A refusal is a call that must fail, with the
error's type and a piece of its message.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

__all__ = [
    "all_ops",
    "away",
    "classes",
    "Draw",
    "flags",
    "given",
    "Op",
    "positive",
    "probabilities",
    "real",
    "Refusal",
    "refusal",
    "Sample",
    "sample",
    "ties",
]


@dataclass(frozen=True)
class Draw:
    """A Tensor to be drawn."""

    shape: tuple
    kind: str = "normal"
    grad: bool = True
    below: int = 0
    values: tuple = ()

    def make(self, rng, dtype):
        if self.values:
            return np.array(self.values)
        size = int(np.prod(self.shape))
        if self.kind == "normal":
            return rng.standard_normal(self.shape).astype(dtype)
        if self.kind == "positive":
            return (0.5 + rng.random(self.shape)).astype(dtype)
        if self.kind == "away":  # distinct, and at least 0.05 away from each other and from 0
            ladder = (rng.permutation(size) - size // 2 + 0.5) * 0.1
            return ladder.reshape(self.shape).astype(dtype)
        if self.kind == "ties":
            return rng.integers(-1, 2, self.shape).astype(dtype)
        if self.kind == "probabilities":
            p = rng.random(self.shape)
            return (p / p.sum(1 if len(self.shape) > 1 else 0, keepdims=True)).astype(dtype)
        if self.kind == "flags":
            return rng.random(self.shape) < 0.5
        return rng.integers(0, self.below, self.shape)


def real(*shape, grad=True):
    return Draw(shape, grad=grad)


def positive(*shape):
    return Draw(shape, "positive")


def away(*shape):
    return Draw(shape, "away")


def ties(*shape):
    """Small integers with many equal ones: where gradients at ties and kinks must follow PyTorch's."""
    return Draw(shape, "ties")


def probabilities(*shape):
    return Draw(shape, "probabilities")


def flags(*shape):
    return Draw(shape, "flags", False)


def classes(below, *shape):
    return Draw(shape, "classes", False, below)


def given(*values):
    return Draw((len(values),), "given", False, values=values)


@dataclass(frozen=True)
class Sample:
    """A call, and what is special about it."""

    args: tuple
    kwargs: dict = field(default_factory=dict)
    smooth: bool = True  # differentiable at the drawn point, so that finite differences mean something
    random: bool = False  # drawn by position in memory: comparable neither with another layout nor with PyTorch

    def __str__(self):
        return f"({', '.join([*map(_text, self.args), *(f'{k}={_text(v)}' for k, v in self.kwargs.items())])})"

    def draw(self, wrap, dtype=np.float64, seed=0):
        """(args, kwargs) with every Draw replaced by wrap(array, whether it wants a gradient)."""
        rng = np.random.default_rng(seed)

        def made(value):
            if isinstance(value, Draw):
                array = value.make(rng, dtype)
                return wrap(array, value.grad and array.dtype.kind == "f")
            if isinstance(value, list):
                return [made(one) for one in value]
            return value

        return [made(value) for value in self.args], {key: made(value) for key, value in self.kwargs.items()}


def _text(value):
    if isinstance(value, Draw):
        return "x".join(map(str, value.shape)) or "scalar"
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list) else repr(value)


def sample(*args, smooth=True, random=False, **kwargs):
    return Sample(args, kwargs, smooth, random)


@dataclass(frozen=True)
class Refusal:
    """A call that must fail."""

    error: type
    message: str
    call: Sample


def refusal(error, message, *args, **kwargs):
    return Refusal(error, message, Sample(args, kwargs))


@dataclass(frozen=True)
class Op:
    """A public op: its samples, its refusals, its counterpart in PyTorch."""

    name: str
    samples: tuple
    refusals: tuple = ()
    torch: Callable | None = None  # given the module torch, a function; None: torch.nn.functional or torch by name
    linear: tuple = ()  # arguments, by position, in which it is linear (affine) while the others are held
    differentiable: bool = True
    views: bool = False  # its result may share memory with its first argument

    def __str__(self):
        return self.name

    def counterpart(self, torch):
        if self.torch is not None:
            return self.torch(torch)
        return getattr(torch.nn.functional, self.name, None) or getattr(torch, self.name)


def all_ops():
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [op for module in modules for op in module.OPS]
