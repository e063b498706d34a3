"""Module: a function with parameters, made of smaller ones.

Assigning a Parameter or a Module to an attribute registers it under that name; names of nested ones are joined
by dots, "0.weight". A buffer is a Tensor that is saved but not trained, such as a running mean.
"""

import contextlib
import functools
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from types import MappingProxyType

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain.watch import part, watchers

from .. import device as devices
from .. import fusion
from ..core.check import function_of
from ..core.modes import no_grad
from ..core.tape import write, zero_grad
from ..core.tensor import Handle, Tensor
from .parameter import Parameter

_IncompatibleKeys = namedtuple("_IncompatibleKeys", ("missing_keys", "unexpected_keys"))


class Module:
    """Base of all layers and networks: subclass it, assign the parts in __init__, and define forward.

    training    whether layers such as Dropout and BatchNorm2d act as in training; see train and eval
    """

    # Parts are attributes like any other. What is a part is said by _kinds, {name: Parameter, Tensor or Module}, where
    # Tensor stands for a buffer.

    def __new__(cls, *args, **kwargs):
        # Here and not in __init__, so that a subclass may assign its parts before it calls, or need not call,
        # super().__init__().
        self = super().__new__(cls)
        self.__dict__.update(training=True, _kinds={}, _non_persistent=set(), _hooks=())
        return self

    def forward(self, *args, **kwargs):
        """What the Module computes; subclasses define it. Call the Module itself, which calls this."""
        raise NotImplementedError(f"{type(self).__name__}: forward is not defined")

    def __call__(self, *args, **kwargs):
        if fusion.wanted():
            with fusion.Fusion():
                return self(*args, **kwargs)
        if watchers():
            with part("module", self):
                return self._called(args, kwargs)
        return self._called(args, kwargs) if self._hooks else self.forward(*args, **kwargs)

    def _called(self, args, kwargs):
        out = self.forward(*args, **kwargs)
        for (hook,) in self._hooks:
            replaced = hook(self, args, out)
            out = out if replaced is None else replaced
        return out

    def register_forward_hook(self, hook):
        """Call hook(module, arguments, output) after forward; what it returns, if not None, replaces output.

        Returns a Handle whose remove() takes the hook back.
        """
        return Handle(self, "_hooks", (function_of("register_forward_hook", "hook", hook),))

    # ---- registration ------------------------------------------------------------------------------------------------

    def __setattr__(self, name, value):
        kind = next((kind for kind in (Parameter, Module) if isinstance(value, kind)), self._kinds.get(name))
        if kind is None:
            object.__setattr__(self, name, value)
        else:
            self._register(name, value, kind, over=True)

    def __getattr__(self, name):
        """What is missing; programs call it for parts, too."""
        return object.__getattribute__(self, name)

    def __delattr__(self, name):
        object.__delattr__(self, name)
        self._kinds.pop(name, None)
        self._non_persistent.discard(name)

    def register_parameter(self, name, parameter):
        """Register a Parameter, or None for one that this instance does without."""
        self._register(name, parameter, Parameter)

    def register_buffer(self, name, tensor, persistent=True):
        """Register a Tensor that is moved and, if persistent, saved with the Module, not trained; or None."""
        self._register(name, tensor, Tensor)
        if not persistent:
            self._non_persistent.add(name)

    def add_module(self, name, module):
        """Register a Module under a name that need not be an identifier, such as "0"; or None."""
        self._register(name, module, Module)

    def _register(self, name, value, kind, over=False):
        """Make a value, or None, a part of this kind; over: also where the attribute is something else so far."""
        layer = type(self).__name__
        if not isinstance(name, str) or not name or "." in name:
            raise ShapeError(f"{layer}: the name of a part is {name!r}, wanted a string without a dot")
        other = not over and name in self.__dict__ and self._kinds.get(name) is not kind
        if other or hasattr(type(self), name):
            raise ShapeError(f"{layer}: the name {name!r} is an attribute already")
        if not isinstance(value, kind | None):
            hint = "; give them one by one, as in Sequential(*modules)" if isinstance(value, list | tuple) else ""
            raise KindError(f"{layer}: {name} is a {type(value).__name__}, wanted a {kind.__name__} or None{hint}")
        self._non_persistent.discard(name)
        self._kinds[name] = kind
        self.__dict__[name] = value

    def _parts(self, kind):
        """{name: part} of this kind. To change parts, assign to attributes."""
        return MappingProxyType({name: self.__dict__[name] for name, one in self._kinds.items() if one is kind})

    _parameters = property(lambda self: self._parts(Parameter))
    _buffers = property(lambda self: self._parts(Tensor))
    _modules = property(lambda self: self._parts(Module))

    # ---- the parts ---------------------------------------------------------------------------------------------------

    def named_modules(self, prefix="", remove_duplicate=True):
        """(name, Module) for this Module, whose name is the prefix, and all below it; shared ones once."""
        seen, coming = set(), [(prefix, self)]
        while coming:
            path, module = coming.pop()
            if not (remove_duplicate and module in seen):
                seen.add(module)
                yield path, module
                below = [(_joined(path, name), one) for name, one in module._modules.items() if one is not None]
                coming += reversed(below)

    def _named(self, kind, prefix="", recurse=True, remove_duplicate=True):
        """(name, part) for the parts of a kind of this Module and, if recurse, of those below it."""
        seen = set()
        for path, module in self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]:
            for name, one in module._parts(kind).items():
                if one is not None and not (remove_duplicate and one in seen):
                    seen.add(one)
                    yield _joined(path, name), one

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """(name, Parameter) for the parameters of this Module and those below it; shared ones once."""
        return self._named(Parameter, prefix, recurse, remove_duplicate)

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """(name, Tensor) for the buffers of this Module and those below it; shared ones once."""
        return self._named(Tensor, prefix, recurse, remove_duplicate)

    def named_children(self):
        """(name, Module) for the Modules directly below this one; shared ones once."""
        return self._named(Module, recurse=False)

    def get_submodule(self, target):
        """The Module of this name below this one, such as "1.conv"; for "" this one itself."""
        return functools.reduce(getattr, target.split("."), self) if target else self

    def parameters(self, recurse=True):
        """The parameters of this Module and those below it, shared ones once: what an optimiser takes."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def buffers(self, recurse=True):
        """The buffers of this Module and those below it, shared ones once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def modules(self):
        """This Module and all below it, shared ones once."""
        return (module for _, module in self.named_modules())

    def children(self):
        """The Modules directly below this one, shared ones once."""
        return (module for _, module in self.named_children())

    # ---- the state ---------------------------------------------------------------------------------------------------

    def state_dict(self, prefix=""):
        """An OrderedDict from names to Tensors without history that share the memory of this Module.

        prefix  what all names begin with, such as "encoder."
        A shared parameter stands under each of its names. numpy.asarray(tensor) is an array of the logical shape.
        """
        state = OrderedDict()
        for path, module in self.named_modules(remove_duplicate=False):
            for name, tensor in (module._parameters | module._buffers).items():
                if tensor is not None and name not in module._non_persistent:
                    state[prefix + _joined(path, name)] = tensor.detach()
        return state

    def load_state_dict(self, state_dict, strict=True):
        """Copy Tensors or arrays into the parameters and buffers of these names, in the type that they have here.

        strict  refuse names that are missing or unexpected
        Returns (missing_keys, unexpected_keys).
        Errors  one ValueError that lists every name that is missing, unexpected or of another shape, TypeError for
                what is no dictionary or no numbers; nothing is changed then
        """
        if not isinstance(state_dict, Mapping):
            kind = type(state_dict).__name__
            raise KindError(f"load_state_dict: state_dict is a {kind}, wanted a dictionary from names to Tensors")
        own = self.state_dict()
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        found = {name: state_dict[name] for name in own if name in state_dict}
        arrays = {name: x.array if isinstance(x, Tensor) else devices.asarray(x) for name, x in found.items()}
        faults = [
            f"{name} has shape {array.shape}, wanted {own[name].shape}"
            for name, array in arrays.items()
            if array.shape != own[name].shape
        ]
        if strict:
            faults += [f"missing {', '.join(missing)}"] * bool(missing)
            faults += [f"unexpected {', '.join(map(str, unexpected))}"] * bool(unexpected)
        if faults:
            raise ShapeError(f"load_state_dict: {type(self).__name__} does not fit: {'; '.join(faults)}")
        for name, array in arrays.items():
            devices.assign(write(own[name]), array)
        return _IncompatibleKeys(missing, unexpected)

    # ---- changes to all parts ----------------------------------------------------------------------------------------

    def train(self, mode=True):
        """Let this Module and all below it act as in training, or not; returns self."""
        if not isinstance(mode, bool):
            raise KindError(f"train: mode is {mode!r}, wanted True or False")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self):
        """Let this Module and all below it act as in use, not in training; returns self."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Switch the gradients of all parameters on or off; returns self."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Forget the gradients of all parameters, or fill them with zeros where they are."""
        zero_grad(self.parameters(), set_to_none)

    def apply(self, function):
        """Call function(module) on all Modules, those below first; returns self."""
        function_of("apply", "function", function)
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def to(self, *targets, device=None, dtype=None, non_blocking=False, memory_format=None):
        """Move all parameters and buffers to a device, and the floating ones to an element type; returns self.

        They stay the same objects, so an optimiser made before keeps them; its state, if any, does not follow.

        targets         a device, an element type, both, or a Tensor that has them
        non_blocking, memory_format  are PyTorch's and change nothing: filters and images lie channels last anyway
        """
        place = kind = None
        for target in (*targets, device, dtype):
            if isinstance(target, Tensor):
                place, kind = target.device, target.dtype
            elif devices.is_device(target):
                place = target
            elif target is not None:
                kind = devices.element_type(target, "to", f" or a device: {devices.DEVICES}")
        if kind is not None and not devices.is_floating(kind):
            raise KindError(f"to: dtype is {kind}, wanted a floating one for the parameters of a Module")

        def change(array):
            array = array if place is None else devices.move(array, place)
            wanted = kind is not None and devices.is_floating(array.dtype) and array.dtype != kind
            return devices.cast(array, kind) if wanted else array

        tensors = [*self.parameters(), *self.buffers()]
        tensors += [tensor.grad for tensor in tensors if tensor.grad is not None]
        changed = [change(tensor.array) for tensor in tensors]  # all before any, as memory may not suffice
        for tensor, array in zip(tensors, changed, strict=True):
            tensor.data = array
        return self

    def float(self):
        """All floating parameters and buffers as float32; returns self."""
        return self.to("float32")

    def double(self):
        """All floating parameters and buffers as float64; returns self."""
        return self.to("float64")

    def half(self):
        """All floating parameters and buffers as float16; returns self."""
        return self.to("float16")

    def bfloat16(self):
        """All floating parameters and buffers as bfloat16; returns self."""
        return self.to("bfloat16")

    def cpu(self):
        """Move all parameters and buffers to the CPU; returns self."""
        return self.to("cpu")

    def cuda(self, device=None):
        """Move all parameters and buffers to a GPU, by its number or name, or to the current one; returns self."""
        return self.to(devices.gpu_name(device))

    # ---- text --------------------------------------------------------------------------------------------------------

    def extra_repr(self):
        """What stands between the parentheses of the layer's text; subclasses define it."""
        return ""

    def __repr__(self):
        extra = [line for line in self.extra_repr().split("\n") if line]
        parts = [f"({name}): {module!r}".replace("\n", "\n  ") for name, module in self._modules.items()]
        if not parts and len(extra) <= 1:
            return f"{type(self).__name__}({''.join(extra)})"
        return f"{type(self).__name__}(\n  " + "\n  ".join(extra + parts) + "\n)"


def _joined(path, name):
    return f"{path}.{name}" if path else name


@contextlib.contextmanager
def evaluation(model):
    """Inside, all modules are in evaluation mode and there is no tape; afterwards their flags are as before."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, training in flags:
            module.training = training
