"""Mixed precision: the element type in which each op computes inside `with minigrad.autocast("bfloat16"):`.

Each op says so where it is defined, by `@casting(policy)`. An op of

    lower       has its floating arguments rounded to the type of autocast, and so its result
    float32     has arguments of 16 bits widened to float32: sums and exponentials would overflow or lose digits
    widest      has its arguments in the widest type among them

and any other op takes what it is given: rectifiers, pooling, views; arithmetic promotes by itself. float64 and integers
are left as they are. Parameters stay what they are, float32: rounding is an op like any other, so that gradients come
back through it in float32. What a function calls inside stays as it is, and so does backward: gradients have the types
of what they are gradients of.

Source  Micikevicius and others 2018, "Mixed precision training", section 3; the lists of torch.autocast for CUDA
"""

import contextlib
import functools
import threading
from typing import NamedTuple

import numpy as np

from minigrad_kernels.errors import KindError

from .. import device
from ..core.check import flag_of
from ..core.interceptors import Interceptor, interceptors, ordered, proceed, stack
from ..core.modes import recording
from ..core.primitive import Primitive
from ..core.tensor import Tensor
from .conversions import cast, typed

__all__ = ["POLICIES", "autocast", "autocast_dtype", "casting", "region", "rounding_anew", "table"]

POLICIES: dict = {}  # {op: policy}, in the order in which ops are defined
LOWER_TYPES = ("float16", "bfloat16")
SINGLE = np.dtype("float32")


class Region(Interceptor):
    """Where autocast is on: its type, and parameters already rounded, {key: Kept}, until the outermost region ends."""

    level, forward_only = 2, True

    def __init__(self, dtype, kept):
        self.dtype, self.kept = dtype, kept

    def apply(self, primitive, values, below):
        """A primitive with a policy of its own takes its arguments converted."""
        if policy := POLICIES.get(primitive):
            convert = _converter(self, policy, values)
            values = tuple([_converted(convert, value) for value in values])
        return proceed(below, primitive, values)

    def call(self, op, policy, args, kwargs):
        """A function with its arguments converted; inside it, autocast is off."""
        if policy != "float32" or kwargs.get("dtype") is None:  # a type that is asked for is the user's business
            convert = _converter(self, policy, [*args, *kwargs.values()])
            args = [_converted(convert, value) for value in args]
            kwargs = {name: _converted(convert, value) for name, value in kwargs.items()}
        token = stack.variable.set(tuple([one for one in interceptors() if one is not self]))
        try:
            return op(*args, **kwargs)
        finally:
            stack.variable.reset(token)


def region():
    """The Region that is open; None outside of any."""
    for one in interceptors():
        if type(one) is Region:
            return one
    return None


def _enter(dtype, kept):
    """Have a Region of this type, and no other, until stack.leave(); None for none."""
    others = [one for one in interceptors() if type(one) is not Region]
    stack.enter(ordered(others if dtype is None else [*others, Region(dtype, kept)]))


class Kept(NamedTuple):
    """A parameter and its rounded values, which hold as long as nobody has written to it or changed its array."""

    parameter: Tensor
    array: object
    number: int  # of the version
    rounded: Tensor

    def holds(self):
        return self.parameter._data is self.array and self.parameter.version[0] == self.number


class autocast(contextlib.ContextDecorator):
    """Inside, convolutions and matrix products compute in 16 bits, and what needs them in float32.

    A with block or a decorator; blocks nest, one in itself too, and enabled=False switches off inside. It is for the
    forward pass and the loss: backward computes in the types of the forward pass, inside a block or outside. Each
    parameter is rounded once in a block, as long as nobody writes to it. float16 overflows above 65504 and loses
    gradients below 6e-8, so it wants amp.GradScaler; bfloat16 has float32's range and does without.

    device_type may be left out; programs written for PyTorch name "cuda" or "cpu" first
    dtype       "float16", "bfloat16", or the type itself; by default float16 for "cuda", bfloat16 for "cpu"
    Errors  TypeError for another type
    """

    def __init__(self, device_type=None, dtype=None, enabled=True, cache_enabled=None):
        if device.is_device(device_type):
            dtype = dtype or ("bfloat16" if device_type == "cpu" else "float16")
        else:
            dtype = device_type if dtype is None else dtype
        enabled = flag_of("autocast", "enabled", enabled)
        found = dtype if not isinstance(dtype, str) or dtype in LOWER_TYPES else None
        found = None if found is None else device.element_type(found)
        if found is None or found.name not in LOWER_TYPES:
            raise KindError(f"autocast: dtype is {dtype!r}, wanted 'float16' or 'bfloat16'")
        self.dtype = found if enabled else None

    def __enter__(self):
        outer = region()
        _enter(self.dtype, {} if outer is None else outer.kept)

    def __exit__(self, *error):
        inner = region()
        stack.leave()
        if inner is not None and region() is None:
            inner.kept.clear()


@contextlib.contextmanager
def rounding_anew():
    """Inside, parameters are rounded as if the autocast block that is open, if any is, began here."""
    _enter(autocast_dtype(), {})
    try:
        yield
    finally:
        stack.leave()


def autocast_dtype():
    """The type of the autocast block that is open; None outside of any."""
    found = region()
    return None if found is None else found.dtype


# ---- arguments -------------------------------------------------------------------------------------------------------


def _converter(region, policy, values):
    """The function that converts a Tensor of floating elements, as the policy says, among these values."""
    if policy == "lower":
        return functools.partial(_lowered, region)
    if policy == "float32":
        return lambda value: typed(value, SINGLE) if value.dtype.itemsize == 2 else value
    types = [value.dtype for value in _tensors(values) if device.is_floating(value.dtype)]
    widest = functools.reduce(device.promote, types) if types else None
    return lambda value: typed(value, widest)


def _lowered(region, value):
    """A value in the type of the region."""
    if value.dtype == region.dtype or value.dtype.itemsize == 8:
        return value
    return _rounded(value, region) if value._requires_grad and value.is_leaf else cast(value, region.dtype)


def _rounded(parameter, region):
    """A leaf that requires a gradient, rounded once in a region; with and without a graph are two things."""
    key = threading.get_ident(), id(parameter), recording.get(), region.dtype
    kept = region.kept.get(key)
    if kept is None or not kept.holds():
        rounded = cast(parameter, region.dtype)
        kept = region.kept[key] = Kept(parameter, parameter._data, parameter.version[0], rounded)
    return kept.rounded


def _tensors(values):
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _converted(convert, value):
    if isinstance(value, Tensor):
        return convert(value) if device.is_floating(value.dtype) else value
    return type(value)(_converted(convert, one) for one in value) if type(value) in (list, tuple) else value


# ---- ops -------------------------------------------------------------------------------------------------------------


def casting(policy):
    """A decorator: in which types an op, a primitive or a function of several, computes where autocast is on."""

    def decorated(op):
        POLICIES[op] = policy
        if isinstance(op, Primitive):  # which finds its way through the interceptors by itself
            return op

        @functools.wraps(op)
        def run(*args, **kwargs):
            for tool in interceptors():
                if type(tool) is Region:
                    return tool.call(op, policy, args, kwargs)
            return op(*args, **kwargs)

        return run

    return decorated


def table():
    """{policy: the names of its ops}."""
    names = {policy: [] for policy in ("lower", "float32", "widest")}
    for op, policy in POLICIES.items():
        names[policy].append(getattr(op, "name", op.__name__))
    return {policy: sorted(found) for policy, found in names.items()}
