"""Tensor: an array, whether gradients flow to it, and how it came to be."""

import copy
import operator
import weakref
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from minigrad_kernels.errors import ExchangeError, KindError, ShapeError, StateError, SubscriptError

from .. import device
from .check import flag_of, function_of, integer_of

if TYPE_CHECKING:
    from .methods import Methods
else:
    Methods = object

__all__ = ["Handle", "Leaf", "Tensor", "check_vectors", "floating_of", "tensor_of", "tensors_of"]

_new = object.__new__


class Tensor(Methods):
    """A value with a gradient.

    array           the array itself: NumPy's on the CPU, CuPy's on a GPU
    data            a Tensor on the same memory without history, as detach() gives. May be assigned another Tensor or an
                    array, which then takes the place of the array
    requires_grad   whether gradients flow to it
    grad            a Tensor after backward() reached this leaf, else None
    grad_fn         the recorded operation that made it, whose next_functions are those that made its arguments; or None
    is_leaf         whether it was made by the user and not by an operation on Tensors that require gradients

    Operators make new Tensors. A leaf is updated in place by `a += b`, `a[i] = b`, `a.add_(b)` and their like where
    nothing is recorded (ops/in_place.py); `a += b` on the result of a recorded operation makes a new Tensor. An array
    given to Tensor is taken as it is, without a copy, and changes with it. The arithmetic, shape and reduction methods
    are those of `minigrad.ops`.

    Types   floating, integer and bool elements; only floating ones can require gradients. A list or tuple of Python
            floats becomes float32
    Errors  TypeError for other kinds of elements, and for a requires_grad that is neither True nor False
    """

    __slots__ = "_data", "_requires_grad", "grad", "target", "version", "__weakref__"
    __array_priority__ = 1000  # NumPy leaves `array + tensor` to Tensor.__radd__
    __array_ufunc__ = None

    def __init__(self, data, requires_grad=False, dtype=None):
        if isinstance(data, Tensor):
            raise KindError("Tensor: data is a Tensor already; use it as it is, or x.detach() for one without history")
        if not isinstance(requires_grad, bool):
            hint = "to make one of a shape, minigrad.empty(2, 3)"
            raise KindError(f"Tensor: requires_grad is {requires_grad!r}, wanted True or False; {hint}")
        self._data = device.asarray(data, dtype)
        self.grad, self.version, self.target = None, [0], None
        self.requires_grad_(requires_grad)

    @staticmethod
    def made(data, target=None, version=None):
        """A result of the engine: nothing is checked or converted."""
        self = _new(Tensor)
        self._data = data
        self._requires_grad = target is not None
        self.grad, self.target = None, target
        self.version = [0] if version is None else version  # shared by all Tensors that look at the same memory
        return self

    def _take(self, data):
        if not isinstance(data, Tensor | np.generic) and not device.is_array(data):
            raise KindError(f"data: got a {type(data).__name__}, wanted a Tensor or an array")
        array = data._data if isinstance(data, Tensor) else device.asarray(data)
        if self._requires_grad and not device.is_floating(array.dtype):
            raise KindError(f"data: elements are {array.dtype}, but self requires a gradient: wanted floating ones")
        if array is self._data:  # as after `w.data -= step`
            return
        if self.is_leaf:
            from .tape import write

            write(self)
        else:
            self.version[0] += 1
        self._data = array
        if isinstance(data, Tensor):
            self.version = data.version

    array = property(operator.attrgetter("_data"))
    data = property(lambda self: self.detach(), _take)
    shape, dtype, ndim = (property(operator.attrgetter(f"_data.{name}")) for name in ("shape", "dtype", "ndim"))
    device = property(lambda self: device.device_of(self.array))
    node = property(lambda self: None if self.target is None else self.target.node)
    grad_fn = property(lambda self: None if self.is_leaf else self.node)
    is_leaf = property(lambda self: self.target is None or self.target.node.__class__ is Leaf)
    requires_grad = property(operator.attrgetter("_requires_grad"), lambda self, value: self.requires_grad_(value))

    def size(self, dim=None):
        """The shape, or its entry dim."""
        if dim is None:
            return self.shape
        if not -self.ndim <= integer_of("size", "dim", dim) < self.ndim:
            raise SubscriptError(f"size: dim is {dim}, but self has {self.ndim} dimensions")
        return self.shape[dim]

    def numel(self):
        """The number of elements."""
        return self.array.size

    nelement = numel

    def dim(self):
        """The number of dimensions."""
        return self.ndim

    # ---- leaving the tape --------------------------------------------------------------------------------------

    def item(self):
        """The only element, as a Python number."""
        if self.array.size != 1:
            raise ShapeError(f"item: self has shape {self.shape}, wanted a single element")
        return device.host(self.array).item()

    def numpy(self):
        """The elements as a NumPy array: on the CPU the array itself."""
        if self.requires_grad:
            raise StateError("numpy: self requires a gradient, which NumPy would lose; call .detach().numpy()")
        return device.host(self.array)

    def tolist(self):
        """The elements as nested lists of Python numbers."""
        return device.host(self.array).tolist()

    def detach(self):
        """The same memory without history. What the optimiser does to one is seen by the other."""
        return Tensor.made(self.array, version=self.version)

    def requires_grad_(self, requires_grad=True):
        """Switch gradients of a leaf on or off; returns self."""
        if not self.is_leaf:
            raise StateError("requires_grad_: self is the result of an operation; use .detach() first")
        requires_grad = flag_of("requires_grad_", "requires_grad", requires_grad)
        if requires_grad and not device.is_floating(self.dtype):
            raise KindError(f"Tensor: requires_grad wants floating elements, got {self.dtype}")
        self._requires_grad = requires_grad
        if requires_grad and self.target is None:
            self.target = Target(Leaf(self), 0)
        return self

    # ---- backward ----------------------------------------------------------------------------------------------

    def backward(self, gradient=None, retain_graph=None, create_graph=False):
        """Add the gradient of this scalar (of sum(gradient * self) otherwise) to .grad of every leaf below it.

        retain_graph    keep what the graph holds for another backward (default: as create_graph)
        create_graph    record the backward pass itself, so that the gradients can be differentiated
        Errors  RuntimeError without history, without a gradient for a non-scalar, through a freed graph or a changed
                value; ValueError if gradient has another shape
        """
        from .tape import backward

        backward(self, gradient, retain_graph, create_graph)

    def register_hook(self, hook):
        """Call hook(gradient) when this Tensor's gradient is complete; a Tensor it returns replaces the gradient.

        Returns a Handle whose remove() takes the hook back.
        """
        function_of("register_hook", "hook", hook)
        if not self.requires_grad:
            raise StateError("register_hook: self does not require a gradient, so the hook would never be called")
        return Handle(self.node, "hooks", (self.target.output, hook))

    def register_post_accumulate_grad_hook(self, hook):
        """Call hook(self) as soon as .grad of this leaf is final, while the rest of backward goes on.

        Returns a Handle whose remove() takes the hook back.
        """
        function_of("register_post_accumulate_grad_hook", "hook", hook)
        if not self.is_leaf or not self.requires_grad:
            raise StateError("register_post_accumulate_grad_hook: wants a leaf that requires a gradient")
        return Handle(self.node, "ready_hooks", (hook,))

    def retain_grad(self):
        """Have backward() add to .grad of this inner result too, as it does for leaves."""
        if not self.requires_grad:
            raise StateError("retain_grad: self does not require a gradient")
        if not self.is_leaf and not any(reference() is self for _, reference in self.node.retained):
            self.node.retained += ((self.target.output, weakref.ref(self)),)  # a strong one would close a cycle

    # ---- interchange -------------------------------------------------------------------------------------------

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        return np.array(array, dtype, copy=copy)

    def __dlpack__(self, **options):
        if self.requires_grad:
            raise ExchangeError("dlpack: self requires a gradient, which the other library would lose; call .detach()")
        if any(stride < 0 for stride in self.array.strides) and not options.get(
            "copy"
        ):  # PyTorch would end the process
            raise ExchangeError(f"dlpack: self lies backwards (strides {self.array.strides}); call .clone() first")
        try:
            with device.place_of(self.array).active():
                return self.array.__dlpack__(**options)
        except BufferError as error:
            half = self.dtype.name == "bfloat16"
            hint = "NumPy hands over no bfloat16; call .float()" if half else f"{error}; call .clone() first"
            raise ExchangeError(f"dlpack: {hint}") from error

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __len__(self):
        if not self.shape:
            raise KindError("len: self has no dimensions")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __bool__(self):
        if self.array.size != 1:
            raise ShapeError(f"bool: self has shape {self.shape}, wanted a single element; ask .any() or .all()")
        return bool(self.item())

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        if self.dtype.kind not in "iu" or self.array.size != 1:
            found = f"shape {self.shape} and elements {self.dtype}"
            raise KindError(f"index: self has {found}, wanted a single integer")
        return device.host(self.array).item()

    def __format__(self, spec):
        return format(self.item() if spec else repr(self), spec)

    def __deepcopy__(self, memo):
        """A copy of a leaf: its elements, requires_grad and gradient, without hooks."""
        if not self.is_leaf:
            raise StateError(f"deepcopy: self was made by {self.node.primitive.name}, wanted a leaf; use .detach()")
        twin = copy.copy(self)
        memo[id(self)] = twin
        twin._data = device.copy(self.array, device.order_of(self.array))
        twin.version, twin.target = [0], self.target and Target(Leaf(twin), 0)
        twin.grad = copy.deepcopy(self.grad, memo)
        return twin

    __hash__ = object.__hash__  # == compares elements, but a Tensor is a key by identity

    def __repr__(self):
        text = np.array2string(device.host(self.array), separator=", ", prefix="Tensor(", threshold=200)
        dtype = "" if self.dtype == device.default_dtype else f", dtype={self.dtype}"
        history = "" if self.is_leaf else f", made by {self.node.primitive.name}"
        history = ", requires_grad=True" if self.is_leaf and self.requires_grad else history
        return f"Tensor({text}{dtype}{history})"


# ---- leaves, and hooks -----------------------------------------------------------------------------------------------


class Leaf:
    """The node of a Tensor that the user made and that requires a gradient: where a path of the tape ends.

    The Tensor holds its Leaf, and the tape the Leaf alone: the gradient of a Tensor that nobody has any more goes
    nowhere.
    """

    __slots__ = ("reference", "hooks", "ready_hooks", "__weakref__")

    def __init__(self, tensor):
        self.reference = weakref.ref(tensor)
        self.hooks = self.ready_hooks = ()  # (output, hook), (hook,)

    def __reduce__(self):
        return Leaf, (self.tensor,)  # a copy has no hooks

    @property
    def tensor(self):
        """The Tensor, None if it is gone."""
        return self.reference()


class Target(NamedTuple):
    """Where the gradient of a Tensor goes: to an output of the node that made it, or to its Leaf, whose output is 0."""

    node: object  # a Leaf, or a Node of tape.py
    output: int


class Handle:
    """A hook that was registered: remove() takes it back.

    entry   a tuple of its own, which is appended to the tuple of hooks that an attribute of the owner is
    """

    def __init__(self, owner, attribute, entry):
        self.owner, self.attribute, self.entry = owner, attribute, entry
        setattr(owner, attribute, (*getattr(owner, attribute), entry))

    def remove(self):
        """Take the hook back; a second time does nothing."""
        hooks = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, tuple(one for one in hooks if one is not self.entry))


# ---- arguments that are Tensors --------------------------------------------------------------------------------------


def tensor_of(op, name, value):
    """The value, a Tensor."""
    if not isinstance(value, Tensor):
        hint = "; wrap it in Tensor(...)" if device.is_array(value) else ""
        raise KindError(f"{op}: {name} is a {type(value).__name__}, wanted a Tensor{hint}")
    return value


def tensors_of(op, values):
    """A list or tuple of Tensors, as a tuple."""
    if not isinstance(values, list | tuple) or not values or not all(isinstance(x, Tensor) for x in values):
        raise KindError(f"{op}: tensors is {type(values).__name__}, wanted a list or tuple of at least one Tensor")
    return tuple(values)


def floating_of(op, name, value):
    """The value, a Tensor of floating elements."""
    if not device.is_floating(tensor_of(op, name, value).dtype):
        raise KindError(f"{op}: {name} has elements {value.dtype}, wanted floating ones; convert with .to('float32')")
    return value


def check_vectors(op, input, shape, **vectors):
    """Refuse what is neither None nor a Tensor of this shape."""
    for name, vector in vectors.items():
        if vector is not None and tensor_of(op, name, vector).shape != shape:
            raise ShapeError(f"{op}: {name} has shape {vector.shape}, wanted {shape} (input has shape {input.shape})")
