"""Layer: an op and its options.

    class LeakyReLU(Layer, op=F.leaky_relu):
        negative_slope: float = 0.01
        inplace: bool = False

is a Module that is made like a dataclass, by LeakyReLU(0.2), and that calls leaky_relu(input, 0.2). The type of an
option says what is asked of it: `int`, `float` and `bool` one of these, `Tensor | None` a buffer, and
`Annotated[type, check]` what check(layer, name, value) returns. Options of other types are checked by the op. `inplace`
is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.
"""

import inspect
import math
from dataclasses import KW_ONLY, InitVar, dataclass, fields
from functools import partial
from typing import Annotated, dataclass_transform

from ..core.check import flag_of, integer_of, number_of
from ..core.tensor import Tensor
from . import init
from .module import Module
from .parameter import parameter

Sizes = int | tuple[int, ...]  # one for each dimension, or one for all
Size = Annotated[int, partial(integer_of, least=0)]
Positive = Annotated[int, partial(integer_of, least=1)]
CHECKS = {bool: flag_of, int: integer_of, float: number_of}
BESIDE_OPTIONS = {"weight", "bias", "training"}  # attributes that an op may take too


@dataclass_transform()
class Layer(Module):
    """Base of the layers that are an op and its options.

    op          is called with the inputs, then with those attributes of the layer that are arguments of it
    unnamed     so many options are shown by their values alone
    usual       names of options that are shown only where they are not their defaults
    A subclass states these, and what its own base wants to know, as in class Conv1d(_Conv, op=F.conv1d, dims=1).
    """

    op = None
    takes: tuple = ()
    unnamed = 0
    usual: tuple = ("inplace",)

    def __init_subclass__(cls, op=None, **facts):
        for name, value in facts.items():
            setattr(cls, name, value)
        if "__init__" in vars(cls):  # which says itself how a layer of this class is made
            return
        dataclass(eq=False, repr=False)(cls)
        for name in cls.__dataclass_fields__.keys() & vars(cls).keys():  # defaults; left there they would hide parts
            delattr(cls, name)
        if op is not None:
            known = (cls.__dataclass_fields__.keys() | BESIDE_OPTIONS) - {"inplace"}
            cls.op = staticmethod(op)
            cls.takes = tuple(name for name in inspect.signature(op).parameters if name in known)

    def __post_init__(self):
        for option in fields(self):
            value = getattr(self, option.name)
            if option.type == Tensor | None:
                self._register(option.name, value, Tensor, over=True)
                continue
            check, *_ = getattr(option.type, "__metadata__", [CHECKS.get(option.type)])  # of Annotated[type, check]
            if check is not None:
                setattr(self, option.name, check(type(self).__name__, option.name, value))

    def forward(self, *inputs):
        return self.op(*inputs, *map(self.__getattribute__, self.takes))  # by names it would take 6 us longer

    def extra_repr(self):
        own, parts = dict(vars(self)), []
        if not isinstance(own.get("bias"), bool):  # a parameter
            own["bias"] = getattr(self, "bias", None) is not None
        for name, option in self.__dataclass_fields__.items():
            value, default = own.get(name), option.default
            unset = value is None and default is None
            plain = name in self.usual and {*(value if isinstance(value, tuple) else [value])} == {default}
            if option.repr and not unset and not plain:
                parts.append(repr(value) if len(parts) < self.unnamed else f"{name}={value!r}")
        return ", ".join(parts)


class Weighted(Layer):
    """Base of the layers with a weight and a bias.

    shapes              a method that gives (shape of weight, shape of bias), None for one that is not there
    reset_parameters    a method that draws them
    axes                how those of the weight lie in memory, see parameter
    """

    axes = None

    _: KW_ONLY
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def __post_init__(self, device, dtype, bias=True):
        super().__post_init__()
        weight, shift = self.shapes()
        for name, shape, order in (("weight", weight, self.axes), ("bias", shift if bias else None, None)):
            made = None if shape is None else parameter(type(self).__name__, shape, device, dtype, order)
            self.register_parameter(name, made)
        self.reset_parameters()


class Affine(Weighted):
    """Linear and convolutions. Their parameters start even in +-1 / sqrt(fan_in), as PyTorch's do.

    transposed  whether each number of the input is spread over the output
    """

    transposed = False

    def reset_parameters(self):
        """Draw the parameters anew."""
        fan_in, _ = init.fans(type(self).__name__, self.weight)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        for drawn in self.parameters(recurse=False):
            init.uniform_(drawn, -bound, bound)
