"""Mixed precision: the element type in which each op computes inside `with minigrad.autocast("bfloat16"):`.

A primitive says so where it is defined, by `@casting(policy)`. One of

    lower       has its floating arguments rounded to the type of autocast, and so its result
    float32     has arguments of 16 bits widened to float32: sums and exponentials would overflow or lose digits

and any other takes what it is given: rectifiers, pooling, views; arithmetic promotes by itself. float64 and integers
are left as they are. An op of several steps, as a loss, computes in float32 inside autocast and outside (`composed`).
Parameters stay what they are, float32: rounding is an op like any other, so that gradients come back through it in
float32. Backward stays as it is: gradients have the types of what they are gradients of.

Source  Micikevicius and others 2018, "Mixed precision training", section 3; the lists of torch.autocast for CUDA
"""

import contextlib
import functools

from minigrad_kernels.errors import KindError

from .. import device
from ..core.check import flag_of
from ..core.interceptors import Interceptor, interceptors, ordered, proceed, stack
from ..core.tensor import Tensor
from .conversions import cast, typed, wide

__all__ = ["autocast", "autocast_dtype", "casting", "composed", "table"]

POLICIES: dict = {}  # {primitive: its policy}
NAMES: dict = {"lower": [], "float32": []}  # {policy: public ops}
LOWER_TYPES = ("float16", "bfloat16")


class Region(Interceptor):
    """Where autocast is on, and its type."""

    level, forward_only = 2, True

    def __init__(self, dtype):
        self.dtype = dtype

    def apply(self, primitive, values, below):
        """A primitive with a policy takes its Tensors converted."""
        if policy := POLICIES.get(primitive):
            convert = wide if policy == "float32" else self.lowered
            values = tuple([convert(value) if _is_floating(value) else value for value in values])
        return proceed(below, primitive, values)

    def lowered(self, value):
        return value if value.dtype == self.dtype or value.dtype.itemsize == 8 else cast(value, self.dtype)


def _is_floating(value):
    return isinstance(value, Tensor) and device.is_floating(value.dtype)


class autocast(contextlib.ContextDecorator):
    """Inside, convolutions and matrix products compute in 16 bits, and what needs them in float32.

    A with block or a decorator; blocks nest, one in itself too, and enabled=False switches off inside. It is for the
    forward pass and the loss: backward computes in the types of the forward pass, inside a block or outside. float16
    overflows above 65504 and loses gradients below 6e-8, so it wants amp.GradScaler; bfloat16 has float32's range and
    does without.

    device_type may be left out; programs written for PyTorch name "cuda" or "cpu" first. cache_enabled changes nothing
    dtype       "float16", "bfloat16", or the type itself; by default float16 for "cuda", bfloat16 for "cpu"
    Errors  TypeError for another type
    """

    def __init__(self, device_type=None, dtype=None, enabled=True, cache_enabled=None):
        if device.is_device(device_type):
            dtype = dtype or ("bfloat16" if device_type == "cpu" else "float16")
        else:
            dtype = device_type if dtype is None else dtype
        if getattr(dtype, "name", dtype) not in LOWER_TYPES:
            raise KindError(f"autocast: dtype is {dtype!r}, wanted 'float16' or 'bfloat16'")
        self.dtype = device.element_type(dtype) if flag_of("autocast", "enabled", enabled) else None

    def __enter__(self):
        others = [one for one in interceptors() if type(one) is not Region]
        stack.enter(ordered(others if self.dtype is None else [*others, Region(self.dtype)]))

    def __exit__(self, *error):
        stack.leave()


def autocast_dtype():
    """The type of the autocast block that is open; None outside of any."""
    return next((one.dtype for one in interceptors() if type(one) is Region), None)


# ---- ops -------------------------------------------------------------------------------------------------------------


def casting(policy, *names):
    """A decorator: in which types a primitive computes where autocast is on.

    names   the ops that are made of it, where that is not one of its own name
    """

    def decorated(primitive):
        POLICIES[primitive] = policy
        NAMES[policy] += names or [primitive.name]
        return primitive

    return decorated


def composed(op):
    """An op of several steps that takes numbers of 16 bits in float32; a decorator.

    Its result is rounded once, to the type of the first floating Tensor given, and so is the gradient of each argument.
    Inside autocast the result stays float32, and where a dtype is asked for, the steps are in that.
    """

    @functools.wraps(op)
    def run(*arguments, **named):
        for value in (*arguments, *named.values()) if named else arguments:
            if isinstance(value, Tensor) and value.dtype.itemsize == 2:
                break
        else:  # as nearly always
            return op(*arguments, **named)
        floats = [value.dtype for value in (*arguments, *named.values()) if _is_floating(value)]
        if not floats or named.get("dtype") is not None:
            return op(*arguments, **named)
        widened = [wide(value) if isinstance(value, Tensor) else value for value in arguments]
        out = op(*widened, **{k: wide(v) if isinstance(v, Tensor) else v for k, v in named.items()})
        return out if autocast_dtype() else typed(out, floats[0])

    NAMES["float32"].append(op.__name__)
    return run


def table():
    """{policy: the names of its ops}."""
    return {policy: sorted(names) for policy, names in NAMES.items()}
