"""The operators and methods of Tensor: one table that names the op behind each."""

import numpy as np

from . import ops
from .device import is_array
from .tensor import Tensor

__all__ = ["BINARY", "METHODS", "REFLECTED"]

BINARY = {
    "__add__": ops.add,
    "__sub__": ops.sub,
    "__mul__": ops.mul,
    "__truediv__": ops.div,
    "__pow__": ops.pow,
    "__matmul__": ops.matmul,
    "__eq__": ops.eq,
    "__ne__": ops.ne,
    "__lt__": ops.lt,
    "__le__": ops.le,
    "__gt__": ops.gt,
    "__ge__": ops.ge,
}
REFLECTED = {
    "__radd__": ops.add,
    "__rsub__": ops.sub,
    "__rmul__": ops.mul,
    "__rtruediv__": ops.div,
    "__rpow__": ops.pow,
    "__rmatmul__": ops.matmul,
}
METHODS = {
    "__neg__": ops.neg,
    "__abs__": ops.abs,
    "__getitem__": ops.getitem,
    "view": ops.reshape,
}
METHODS |= {
    name: getattr(ops, name)
    for name in (
        "abs add amax amin argmax argmin clamp div eq exp expand flatten ge gt isfinite isnan le log log_softmax "
        "logical_not logsumexp lt matmul max maximum mean min minimum mul ne neg permute pow relu reshape sigmoid sign "
        "softmax sqrt square squeeze sub sum take_along_dim tanh to transpose unsqueeze var"
    ).split()
}


def _operand(value):
    """What an operator can work with: Tensors and numbers as they are, arrays as Tensors; None for anything else."""
    if isinstance(value, Tensor | bool | int | float):
        return value
    return Tensor(value) if is_array(value) or isinstance(value, np.generic) else None


def _binary(op):
    def method(self, other):
        other = _operand(other)
        return NotImplemented if other is None else op(self, other)

    return method


def _reflected(op):
    def method(self, other):
        other = _operand(other)
        return NotImplemented if other is None else op(other, self)

    return method


def _method(op):
    def method(self, *args, **kwargs):
        return op(self, *args, **kwargs)

    method.__doc__ = op.__doc__
    return method


for _name, _op in BINARY.items():
    setattr(Tensor, _name, _binary(_op))
for _name, _op in REFLECTED.items():
    setattr(Tensor, _name, _reflected(_op))
for _name, _op in METHODS.items():
    setattr(Tensor, _name, _method(_op))
for _name, _method_of in {"float": "float32", "double": "float64", "long": "int64"}.items():
    setattr(Tensor, _name, (lambda dtype: lambda self: ops.to(self, dtype))(_method_of))
setattr(Tensor, "T", property(lambda self: ops.permute(self, *reversed(range(self.ndim)))))  # noqa: B010
