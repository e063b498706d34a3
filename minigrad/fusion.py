"""Operations that wait for the next one, so that both run in one pass over memory.

While a Module is called, an operation that others extend returns a Tensor whose elements are still to be computed:

    conv2d        relu and max_pool2d extend it, in either order, or a sum with another Tensor and then relu; without a
                  graph also batch_norm by given statistics
    linear        relu extends it
    batch_norm    a sum with another Tensor and then relu extend it; the statistics of a batch are computed at once

The extended operation is a primitive of its own (`conv2d_relu_max_pool2d`, say) with gradient rules of its own, which
agree with those of the separate ones to rounding; its values are theirs, bit for bit, but for sums of 16 bits, which
are rounded once. Batch norm by given statistics is folded into the filters before it, which agrees to rounding:

    batch_norm(conv(x, w) + b) = conv(x, s w) + (s b + t),    s = weight / sqrt(running_var + eps),
                                                              t = bias - running_mean s

A waiting Tensor is computed the moment that anybody looks at it: another operation, a hook, the user. It is computed
in the modes of the moment when it was asked for. Its arguments have not changed by then: what reads those that the
engine is about to write is computed first (before_write), and none waits longer than the outermost Module is called. An
interceptor that wants each op by itself, as anomaly mode, switches this off.

waits(primitive, shape) says that the result of a primitive may wait, and extends(primitive, earlier, fused) which
primitive it makes with one that waits.

Source  Jacob et al. 2018, "Quantization and training of neural networks for efficient integer-arithmetic-only
        inference", section 3.2 (folding)
"""

import contextlib
import contextvars
import weakref
from typing import NamedTuple

import numpy as np

from . import device
from .core.interceptors import Interceptor, interceptors, ordered, proceed, stack
from .core.modes import recording
from .core.tensor import Tensor

__all__ = ["Fusion", "Waiting", "apart", "call_of", "extends", "later", "waits", "wanted"]

SHAPES: dict = {}  # {primitive whose result may wait: shape(*arguments), that of its first output}
EXTENSIONS: dict = {}  # {primitive: {the one before: the rule}}


def waits(primitive, shape):
    """State that the result may wait for what extends it; shape(*arguments) is that of the first output."""
    SHAPES[primitive] = shape


def extends(primitive, earlier, fused=None):
    """State what a primitive makes of an argument that waits for the primitive `earlier`.

    fused   the primitive for both: it takes the arguments of `earlier`, then the others of `primitive` but those that
            are fixed. Without it this is a decorator of a function that is called with the arguments of `earlier` and
            the other arguments of `primitive`, and returns the primitive for both with its arguments, or None
    """

    def state(rule):
        EXTENSIONS.setdefault(primitive, {})[earlier] = rule
        return rule

    if fused is None:
        return state
    places = [i for i, name in enumerate(primitive.names[1:]) if name not in primitive.fixed]
    return state(lambda values, *others: (fused, (*values, *[others[i] for i in places])))


class Call(NamedTuple):
    """What a waiting Tensor is to be computed by.

    primitive, values    the operation, joined with those before it
    step                 the last operation by itself, which is applied if `before` was computed meanwhile
    before               the waiting Tensor that was extended, None if there was none
    """

    primitive: object
    values: tuple
    context: contextvars.Context  # the modes in which it was asked for, and the interceptors below Fusion
    recorded: bool
    fusion: "Fusion"
    before: "Waiting | None" = None
    step: tuple = ()

    def joined(self):
        """Whether nobody has asked for the Tensor before the last operation."""
        return self.before is None or self.before.call is not None

    def result(self):
        return _run(self.context, *((self.primitive, self.values) if self.joined() else self.step))


def _run(context, primitive, values):
    """The first output of a primitive in a context."""
    result = context.copy().run(lambda: proceed(interceptors(), primitive, values))
    return result[0] if type(result) is tuple else result


class Waiting(Tensor):
    """A Tensor that is computed when somebody asks for more than its shape, type and device."""

    __slots__ = ("call", "like", "result", "shape")

    def __init__(self, call, like, requires_grad):
        self.call, self.like, self.result = call, like, None
        self.shape = SHAPES[call.primitive](*call.values)
        self._requires_grad, self.grad = requires_grad, None
        call.fusion.waiting.append(weakref.ref(self))

    def computed(self):
        """The result, which is computed when it is first asked for."""
        call = self.call
        if call is not None:
            self.result = call.result()
            self.call = None  # after the result, for another thread that reads both
            self.like = self.result._data  # and lets go of the arguments
        return self.result

    def _take_array(self, array):
        self.computed()._data = self.like = array
        self.shape = array.shape

    _data = property(lambda self: self.computed()._data, _take_array)
    target = property(lambda self: self.computed().target)
    version = property(lambda self: self.computed().version, lambda self, new: setattr(self.computed(), "version", new))
    dtype = property(lambda self: self.like.dtype)
    device = property(lambda self: device.device_of(self.like))
    ndim = property(lambda self: len(self.shape))


class Fusion(Interceptor):
    """Inside, operations wait for what may extend them; at the end all are computed."""

    level = 1

    def __enter__(self):
        self.waiting: list[weakref.ref] = []
        stack.enter(ordered((*[one for one in interceptors() if not isinstance(one, Fusion)], self)))
        return self

    def __exit__(self, *error):
        super().__exit__(*error)
        self.compute()

    def compute(self, wanted=lambda call: True):
        """Compute what waits, the last one first: what it extends is computed with it."""
        for reference in reversed(self.waiting):
            tensor = reference()
            if tensor is not None and tensor.call is not None and wanted(tensor.call):
                tensor.computed()

    def apply(self, primitive, values, below):
        """Extend an argument that waits, or wait, or go on."""
        result = _extended(primitive, values) if primitive in EXTENSIONS else None
        if result is None and primitive in SHAPES:
            result = later(Call(primitive, values, contextvars.copy_context(), recording.get(), self))
        if result is None:
            return proceed(below, primitive, values)
        return result if primitive.single else (result, *[None] * (len(primitive.outputs) - 1))

    def before_write(self, tensor):
        """Compute what waits and reads the memory of this Tensor."""
        self.compute(lambda call: any(isinstance(one, Tensor) and one.version is tensor.version for one in call.values))


def wanted():
    """Whether a Module that is called should open a Fusion: none is open, and nobody wants each op by itself."""
    for one in interceptors():
        if one.eager or one.__class__ is Fusion:
            return False
    return True


@contextlib.contextmanager
def apart():
    """Inside, operations wait for one another alone, not for those outside, nor those for them."""
    outside = [one for one in interceptors() if isinstance(one, Fusion)]
    if not outside:
        yield
        return
    outside[-1].compute()
    with Fusion():
        yield


def later(call):
    """A Tensor that waits for what this Call gives; None where its arguments lie on several devices."""
    arrays, needed = [], False
    for value in call.values:
        if isinstance(value, Tensor):
            arrays.append(value._data)  # which computes one that waited
            needed = needed or value._requires_grad
    if {*map(type, arrays)} != {np.ndarray} and len({*map(device.device_of, arrays)}) > 1:
        return None
    return Waiting(call, arrays[0], call.recorded and needed)


def call_of(tensor):
    """The Call of a Tensor that waits and may be extended now; None for any other."""
    call = tensor.call if tensor.__class__ is Waiting else None
    return call if call is not None and call.joined() and call.recorded == recording.get() else None


def _extended(primitive, values):
    """The result of a primitive one of whose arguments waits for it; None where there is none such."""
    for position, value in enumerate(values):
        call = call_of(value) if value.__class__ is Waiting else None
        rule = call and EXTENSIONS[primitive].get(call.primitive)
        found = rule and rule(call.values, *values[:position], *values[position + 1 :])
        if found:
            fused, arguments = found
            if fused not in SHAPES:
                return _run(call.context, fused, arguments)
            joined = Call(fused, arguments, call.context, call.recorded, call.fusion, value, (primitive, values))
            return later(joined)
    return None
