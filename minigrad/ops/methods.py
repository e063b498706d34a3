"""The operators and methods of Tensor: one table that names the op behind each."""

import functools
from typing import Any

import numpy as np

from .. import ops as _ops
from ..core.create import NEW
from ..core.tensor import Tensor, tensor_of
from ..device import gpu_name, is_array
from . import contract, in_place, reduce, scans, shape
from .elementwise import arithmetic, choices
from .elementwise.arithmetic import allclose

ops: Any = _ops  # mypy does not follow its star imports

__all__ = ["BINARY", "CONVERSIONS", "LISTED", "METHODS", "REFLECTED"]

BINARY = {
    "__add__": ops.add,
    "__sub__": ops.sub,
    "__mul__": ops.mul,
    "__truediv__": ops.div,
    "__pow__": ops.pow,
    "__matmul__": ops.matmul,
    "__mod__": ops.remainder,
    "__floordiv__": functools.partial(ops.div, rounding_mode="floor"),
    "__and__": ops.bitwise_and,
    "__or__": ops.bitwise_or,
    "__xor__": ops.bitwise_xor,
    "__eq__": ops.eq,
    "__ne__": ops.ne,
    "__lt__": ops.lt,
    "__le__": ops.le,
    "__gt__": ops.gt,
    "__ge__": ops.ge,
}
COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
REFLECTED = {name.replace("__", "__r", 1): op for name, op in BINARY.items() if name not in COMPARISONS}


def where(input, condition, other):
    """input where the condition holds, other elsewhere."""
    return ops.where(condition, input, other)


def type_as(input, other):
    """input in the element type of other."""
    return ops.to(input, tensor_of("type_as", "other", other).dtype)


def expand_as(input, other):
    """input repeated to the shape of other."""
    return ops.expand(input, tensor_of("expand_as", "other", other).shape)


def view_as(input, other):
    """input seen in the shape of other."""
    return ops.view(input, tensor_of("view_as", "other", other).shape)


def cuda(input, device=None):
    """input on a GPU, given by its number or name, or on the current one."""
    return ops.to(input, gpu_name(device))


def type(input, dtype):
    """input in another element type, also in that of torch.FloatTensor and its like."""
    return ops.to(input, getattr(dtype, "dtype", dtype))


# Every op of these families is a method, and so are those of ALSO; FUNCTIONS, as in PyTorch, are not.
FAMILIES = (arithmetic, choices, contract, reduce, scans, shape)
ALSO = "log_softmax matmul relu softmax"
FUNCTIONS = "cat einsum embedding one_hot pad stack where"
_NAMES = {name for family in FAMILIES for name in family.__all__} | set(ALSO.split())
METHODS = {name: getattr(ops, name) for name in sorted(_NAMES - set(FUNCTIONS.split()))}
METHODS |= {"__neg__": ops.neg, "__abs__": ops.abs, "__invert__": ops.bitwise_not, "__getitem__": ops.getitem}
METHODS |= NEW
METHODS |= {op.__name__: op for op in in_place.METHODS} | {"__setitem__": in_place.setitem}
METHODS |= {op.__name__: op for op in (allclose, where, type, type_as, expand_as, view_as, cuda)}
CONVERSIONS = {"half": "float16", "float": "float32", "double": "float64", "int": "int32", "long": "int64"}
CONVERSIONS |= {"bfloat16": "bfloat16", "bool": "bool", "cpu": "cpu"}
LISTED = "expand flip permute repeat reshape tile view"  # x.reshape(2, 3) as well as x.reshape((2, 3))


def _operand(value):
    """What an operator can work with: Tensors and numbers as they are, arrays as Tensors; None for anything else."""
    if isinstance(value, Tensor | bool | int | float):
        return value
    return Tensor(value) if is_array(value) or isinstance(value, np.generic) else None


def _binary(op, reflected=False):
    def method(self, other):
        other = _operand(other)
        if other is None:
            return NotImplemented
        return op(other, self) if reflected else op(self, other)

    return method


def _in_place(name, op):
    """`self += other` and its like; Python takes `self + other` where this is not implemented."""

    def method(self, other):
        other = _operand(other)
        if other is None or in_place.rebinds(self, other):
            return NotImplemented
        return in_place.update(name.strip("_"), op, self, other)

    return method


def _listed(op):
    def method(self, *sizes, **named):
        listed = (sizes,) if sizes and not isinstance(sizes[0], tuple | list) else sizes
        return op(self, *listed, **named)

    method.__doc__ = op.__doc__
    return method


for _name, _op in BINARY.items():
    setattr(Tensor, _name, _binary(_op))
    if _name not in COMPARISONS:
        _own = _name.replace("__", "__i", 1)
        setattr(Tensor, _own, _in_place(_own, _op))
for _name, _op in REFLECTED.items():
    setattr(Tensor, _name, _binary(_op, reflected=True))
for _name, _op in METHODS.items():
    setattr(Tensor, _name, _listed(_op) if _name in LISTED.split() else _op)
for _name, _dtype in CONVERSIONS.items():
    setattr(Tensor, _name, (lambda dtype: lambda self: ops.to(self, dtype))(_dtype))
setattr(Tensor, "T", property(lambda self: ops.permute(self, tuple(reversed(range(self.ndim))))))  # noqa: B010
