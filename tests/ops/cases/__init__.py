"""The table that drives the tests of the ops: one Op for each public op, in a file for each family.

A sample says how to call an op; `draw` turns its Draws into arrays. The reference is the op's definition in NumPy: that
of its row, or of tests/ops/definitions.py. Ops without one are defined by their docstrings, which test_formulas.py
evaluates; tests/oracles/test_ops_torch.py sets every row beside PyTorch.
A refusal is a call that must fail, with the error's type and a piece of its message.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.ops import definitions


def _away(rng, shape):
    """Distinct numbers, at least 0.05 away from each other and from 0."""
    size = int(np.prod(shape))
    return ((rng.permutation(size) - size // 2 + 0.5) * 0.1).reshape(shape)


def _probabilities(rng, shape):
    """Numbers that add up to 1 along the dimension of classes."""
    p = rng.random(shape)
    return p / p.sum(1 if len(shape) > 1 else 0, keepdims=True)


FLOATING = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: 0.5 + rng.random(shape),
    "away": _away,
    "ties": lambda rng, shape: rng.integers(-1, 2, shape).astype(float),
    "probabilities": _probabilities,
}


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
            array = np.array(self.values)
            return array.astype(dtype) if array.dtype.kind == "f" else array
        if self.kind in FLOATING:
            return np.asarray(FLOATING[self.kind](rng, self.shape)).astype(dtype)
        return rng.random(self.shape) < 0.5 if self.kind == "flags" else rng.integers(0, self.below, self.shape)


def _kind(kind, grad=True):
    return lambda *shape: Draw(shape, kind, grad)


real, positive, away, probabilities = map(_kind, ("normal", "positive", "away", "probabilities"))
ties = _kind("ties")  # small integers with many equal ones, where gradients at ties and kinks must follow PyTorch's
constant, flags = _kind("positive", False), _kind("flags", False)


def classes(below, *shape):
    return Draw(shape, "classes", False, below)


def given(*values):
    return Draw(np.shape(values), "given", False, values=values)


@dataclass(frozen=True)
class Sample:
    """A call, and what is special about it."""

    args: tuple
    kwargs: dict = field(default_factory=dict)
    smooth: bool = True  # differentiable at the drawn point, so that finite differences mean something
    random: bool = False  # drawn by position in memory: comparable neither with another layout nor with a definition

    def __str__(self):
        return f"({', '.join([*map(_text, self.args), *(f'{k}={_text(v)}' for k, v in self.kwargs.items())])})"

    def draw(self, wrap, dtype=np.float64, seed=0):
        """(args, kwargs) with every Draw replaced by wrap(array, whether it wants a gradient)."""
        rng = np.random.default_rng(seed)

        def made(value):
            if isinstance(value, Draw):
                return wrap(value.make(rng, dtype), value.grad and value.kind in FLOATING)
            return [made(one) for one in value] if isinstance(value, list) else value

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
    """A public op: its samples, its refusals, its definition."""

    name: str
    samples: tuple
    refusals: tuple = ()
    reference: Callable | None = None  # of float64 arrays in place of Tensors; None: that of its docstring
    differentiable: bool = True
    views: bool = False  # its result may share memory with its first argument, as that of its first sample does

    def __str__(self):
        return self.name


def op(name, *rows, **options):
    """An Op of samples and refusals."""
    samples, refusals = (tuple(row for row in rows if isinstance(row, kind)) for kind in (Sample, Refusal))
    reference = getattr(definitions, name, None) or getattr(definitions, f"{name}_", None)
    return Op(name, samples, refusals, **{"reference": reference} | options)


def all_ops():
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [op for module in modules for op in module.OPS]
