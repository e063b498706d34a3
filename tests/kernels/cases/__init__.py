"""The rows that drive test_kernels: one file for each family, one KernelCase for each call to check.

A module of this folder holds CASES, a list of KernelCase. What is refused is in tests/kernels/test_refuse.py.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Output:
    """An array that the kernel writes; kind "float" is the type under test, else the name of a NumPy type."""

    shape: tuple
    layout: tuple | None = None  # axes in memory, slowest first; None: C order
    kind: str = "float"


@dataclass(frozen=True)
class KernelCase:
    """One call: function(*inputs, *params.values(), *outputs, *absent[, workspace])."""

    family: str
    function: str
    shapes: tuple  # of the inputs; None where an optional input is absent
    params: dict  # the other arguments, by name, in the order of the signature
    outputs: tuple
    layouts: tuple = ()  # of each input: axes in memory, a function from an array to an equal one, or None
    kinds: tuple = ()  # of each input: "float", "positive", "index n" (int64 in 0..n-1), or a function of rng and shape
    terms: int = 1  # roundings that lie between the inputs and a result: the length of its sum
    exact: bool = True  # small integers in give results without rounding
    relative: bool = False  # roundings are those of the largest result, not of each; else see `bounds`
    reference_params: dict = field(default_factory=dict)  # arguments that the reference alone takes
    workspace: bool = False  # whether the function takes one
    arrange: Callable | None = None  # of (inputs, params): the arguments before the outputs, where in another order
    absent: tuple = ()  # a None for each optional output, the last ones, that is not wanted
    nan: tuple = ()  # positions of the inputs whose NaN must reach exactly the results that the reference says

    def __str__(self):
        shapes = " ".join("x".join(map(str, shape)) if shape is not None else "-" for shape in self.shapes)
        params = " ".join(f"{name}={value}".replace(" ", "") for name, value in self.params.items())
        return f"{self.family}.{self.function} {shapes} {params}".strip()

    def arguments(self, inputs):
        """What comes before the outputs."""
        return self.arrange(inputs, self.params) if self.arrange else (*inputs, *self.params.values())

    def references(self, function, inputs):
        """Results of the reference, always a tuple."""
        results = function(*self.arguments(inputs), *self.reference_params.values())
        return results[: len(self.outputs)] if isinstance(results, tuple) else (results,)

    def bounds(self, function, inputs, eps):
        """How far each result may be from the reference: each term of a sum, or the largest result, is rounded terms
        times."""
        if self.relative:
            eps = max(eps, 1e-12)  # sums are float64's in either type, and some of means that are far from 0
            sizes = [1 + np.abs(result).max(initial=0) for result in self.references(function, inputs)]
        else:
            sizes = self.references(function, [None if x is None else np.abs(x) for x in inputs])
        return [eps * self.terms * size for size in sizes]


def all_cases():
    """The rows of all modules here; packages hold rows of other tests."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return [row for module in modules for row in importlib.import_module(f"{__name__}.{module}").CASES]
