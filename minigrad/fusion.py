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

A waiting Tensor is computed the moment that anybody looks at it: another operation, a hook, the user. Its arguments
have not changed by then: what reads those that the engine is about to write is computed first (before_write), and none
waits longer than the outermost Module is called. An interceptor that wants each op by itself, as anomaly mode, switches
this off.

waits(primitive, shape) says that the result of a primitive may wait, and extends(primitive, earlier)(rule) what it
makes of one that waits.

Source  Jacob et al. 2018, "Quantization and training of neural networks for efficient integer-arithmetic-only
        inference", section 3.2 (folding)
"""

import contextlib
import weakref
from typing import NamedTuple

from numpy import ndarray

from . import device
from .core.interceptors import Interceptor, interceptors, proceed
from .core.modes import recording
from .core.tensor import Tensor

__all__ = ["Fusion", "Waiting", "apart", "extended", "extends", "later", "open_call", "waits", "wanted"]

SHAPES: dict = {}  # {primitive whose result may wait: shape(*arguments), that of its first output}
EXTENSIONS: dict = {}  # {primitive: {the one before: the rule}}


def waits(primitive, shape):
    """State that the result may wait for what extends it; shape(*arguments) is that of the first output."""
    SHAPES[primitive] = shape


def extends(primitive, earlier):
    """State what a primitive makes of an argument that waits for the primitive `earlier`: a decorator.

    The function is called with the arguments of `earlier` and the other arguments of `primitive`, and returns the
    primitive for both with its arguments, or None.
    """

    def state(rule):
        EXTENSIONS.setdefault(primitive, {})[earlier] = rule
        return rule

    return state


class Fusion(Interceptor):
    """Inside, operations wait for what may extend them; at the end all are computed."""

    def __enter__(self):
        self.waiting: list[weakref.ref] = []
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.compute()

    def compute(self):
        """Compute all that waits."""
        for reference in self.waiting:
            if type(tensor := reference()) is Waiting:
                tensor.compute()

    def apply(self, primitive, values, below):
        """Extend an argument that waits, or wait, or go on."""
        result = extended(primitive, values) if primitive in EXTENSIONS else None
        if result is None and primitive in SHAPES:
            result = later(primitive, values, None, self, below)
        if result is None:
            return proceed(below, primitive, values)
        return result if primitive.single else (result, *[None] * (len(primitive.outputs) - 1))

    def before_write(self, tensor):
        """Compute what waits and reads the memory of this Tensor."""
        for reference in self.waiting:
            if type(waiting := reference()) is Waiting:
                values = _call.__get__(waiting).values
                if any(isinstance(value, Tensor) and value.version is tensor.version for value in values):
                    waiting.compute()


def wanted():
    """Whether a Module that is called should open a Fusion: none is open, and nobody wants each op by itself."""
    return not any(one.eager or isinstance(one, Fusion) for one in interceptors())


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


class Step(NamedTuple):
    """The last operation of a Call by itself: a primitive and its arguments, of which the one at `position` waited."""

    primitive: object
    values: tuple
    position: int
    before: weakref.ref  # to the Tensor that waited

    def argument(self):
        """The Tensor that waited, if it was computed meanwhile; else None."""
        before = self.before()
        return before if type(before) is Tensor else None


class Call(NamedTuple):
    """A primitive to be applied. Its last step is to be applied by itself if what it extended was computed."""

    primitive: object
    values: tuple
    shape: tuple
    recorded: bool
    step: Step | None
    fusion: Fusion  # within which it waits
    below: tuple  # the interceptors below that
    layers: list | None = None  # that asked for it, where a profile notes them

    def result(self):
        argument = None if self.step is None else self.step.argument()
        if argument is None:
            return proceed(self.below, self.primitive, self.values)
        before, after = self.step.values[: self.step.position], self.step.values[self.step.position + 1 :]
        return proceed(self.below, self.step.primitive, (*before, argument, *after))


_new = object.__new__
_call = Tensor.__dict__["_data"]  # where a Tensor keeps its array, and a waiting one its Call


def _look(name):
    """A slot of Tensor that is filled when the Tensor is computed."""
    slot = Tensor.__dict__[name]

    def get(self):
        self.compute()
        return slot.__get__(self)

    return property(get, slot.__set__)


class Waiting(Tensor):
    """A Tensor to be computed. Once that has happened it is a Tensor like any other."""

    __slots__ = ()

    def compute(self):
        """Its array, made when first asked for."""
        call = _call.__get__(self)
        if type(call) is not Call:  # another thread was faster
            return call
        if call.recorded == recording.get():  # as nearly always
            result = call.result()
        else:
            with recording.setting(call.recorded):
                result = call.result()
        if type(result) is tuple:
            result = result[0]
        for name in ("node", "output", "version"):
            Tensor.__dict__[name].__set__(self, getattr(result, name))
        array = result.array
        _call.__set__(self, array)
        self.__class__ = Tensor
        return array

    def _replace(self, array):
        self.compute()
        self._data = array  # as that of any Tensor by now

    def _like(self):
        return next(value for value in _call.__get__(self).values if isinstance(value, Tensor)).array

    _data = property(compute, _replace)
    node, output, version = (_look(name) for name in ("node", "output", "version"))
    shape = property(lambda self: _call.__get__(self).shape)
    dtype = property(lambda self: self._like().dtype)
    device = property(lambda self: device.device_of(self._like()))
    ndim = property(lambda self: len(self.shape))


def later(primitive, values, step, fusion, below):
    """The first output of a primitive as a Tensor that waits; None where its arguments lie on several devices."""
    arrays, away, needed = [], False, False
    for value in values:
        if isinstance(value, Tensor):
            arrays.append(array := value._data)  # which computes one that waited itself
            away = away or array.__class__ is not ndarray
            needed = needed or value._requires_grad
    if away and len({*map(device.device_of, arrays)}) > 1:
        return None
    recorded = recording.get()
    return _waits(
        Call(primitive, values, SHAPES[primitive](*values), recorded, step, fusion, below), recorded and needed
    )


def _waits(call, requires_grad):
    tensor = _new(Waiting)
    _call.__set__(tensor, call)
    tensor._requires_grad = requires_grad
    tensor.grad = None
    tensor.hooks = tensor.ready_hooks = ()
    call.fusion.waiting.append(weakref.ref(tensor))
    return tensor


def open_call(tensor):
    """The Call of a Tensor that waits and may be extended now; None for any other."""
    if tensor.__class__ is not Waiting:
        return None
    call = _call.__get__(tensor)
    whole = call.step is None or call.step.argument() is None
    return call if whole and call.recorded == recording.get() else None


def extended(primitive, values):
    """The result of a primitive one of whose arguments waits for it; None where there is none such."""
    for position, value in enumerate(values):
        if value.__class__ is not Waiting or (call := open_call(value)) is None:
            continue
        rule, others = EXTENSIONS[primitive].get(call.primitive), (*values[:position], *values[position + 1 :])
        found = rule and rule(call.values, *others)
        if not found:
            continue
        fused, arguments = found
        if fused not in SHAPES:
            result = proceed(call.below, fused, arguments)
            return result[0] if type(result) is tuple else result
        step = Step(primitive, (*values[:position], None, *values[position + 1 :]), position, weakref.ref(value))
        if any([isinstance(other, Tensor) for other in others]):
            return later(fused, arguments, step, call.fusion, call.below)
        same = arguments is call.values and SHAPES[fused] is SHAPES[call.primitive]
        shape = call.shape if same else SHAPES[fused](*arguments)
        return _waits(Call(fused, arguments, shape, call.recorded, step, call.fusion, call.below), value._requires_grad)
    return None
