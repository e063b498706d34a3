"""Module: a function with parameters, made of smaller ones.

Assigning a Parameter or a Module to an attribute registers it under that name; names of nested ones are joined
by dots, "0.weight". A buffer is a Tensor that is saved but not trained, such as a running mean.
"""

import html
import math

from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain.watch import part, watchers

from .. import device, fusion
from ..core.check import function_of
from ..core.tape import zero_grad
from ..core.tensor import Handle, Tensor
from .moves import bfloat16, cpu, cuda, double, float, half, to
from .parameter import Parameter
from .state import load_state_dict, state_dict

__all__ = ["Module"]


class Module:
    """Base of all layers and networks: subclass it, assign the parts in __init__, and define forward.

    training    whether layers such as Dropout and BatchNorm2d act as in training; see train and eval
    """

    training = True

    def __new__(cls, *args, **kwargs):
        # Here and not in __init__, so that a subclass may assign its parts before it calls, or need not call,
        # super().__init__().
        self = super().__new__(cls)
        registries = {
            "_parameters": {},
            "_buffers": {},
            "_modules": {},
            "_non_persistent": set(),
            "_hooks": (),
        }
        self.__dict__.update(registries)
        return self

    def forward(self, *args, **kwargs):
        """What the Module computes; subclasses define it. Call the Module itself, which calls this."""
        raise NotImplementedError(f"{type(self).__name__}: forward is not defined")

    def __call__(self, *args, **kwargs):
        if fusion.wanted():
            with fusion.Fusion():
                return self(*args, **kwargs)
        if device.marking.get() or watchers():
            with device.marked(type(self).__name__), part("module", self):
                return self._called(args, kwargs)
        return self._called(args, kwargs)

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

    # ---- registration ------------------------------------------------------------------------------------------

    def __setattr__(self, name, value):
        kept = next((kept for kept in (self._parameters, self._modules, self._buffers) if name in kept), None)
        if isinstance(value, Parameter):
            self._register(name, value, self._parameters)
        elif isinstance(value, Module):
            self._register(name, value, self._modules)
        elif kept is None:
            object.__setattr__(self, name, value)
        elif value is not None and not (kept is self._buffers and isinstance(value, Tensor)):
            wanted = {id(self._parameters): "a Parameter", id(self._modules): "a Module"}.get(id(kept), "a Tensor")
            raise KindError(f"{type(self).__name__}: {name} is a {type(value).__name__}, wanted {wanted} or None")
        else:
            kept[name] = value

    def __getattr__(self, name):
        own = self.__dict__
        for kept in ("_parameters", "_buffers", "_modules"):
            if name in (found := own.get(kept, ())):
                return found[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name):
        for kept in (self._parameters, self._buffers, self._modules):
            if kept.pop(name, self) is not self:
                self._non_persistent.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self):
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _register(self, name, value, registry):
        if not isinstance(name, str) or not name or "." in name:
            raise ShapeError(f"{type(self).__name__}: the name of a part is {name!r}, wanted a string without a dot")
        if hasattr(type(self), name):  # which would be found instead
            raise ShapeError(f"{type(self).__name__}: the name {name!r} is an attribute already, of the class")
        for kept in (self._parameters, self._buffers, self._modules):
            if kept is not registry:
                kept.pop(name, None)
        self.__dict__.pop(name, None)
        registry[name] = value

    def _refuse_taken(self, name, registry):
        if isinstance(name, str) and name not in registry and hasattr(self, name):
            raise ShapeError(f"{type(self).__name__}: the name {name!r} is an attribute already")

    def register_parameter(self, name, parameter):
        """Register a Parameter, or None for one that this instance does without."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise KindError(f"register_parameter: {name} is a {type(parameter).__name__}, wanted a Parameter or None")
        self._refuse_taken(name, self._parameters)
        self._register(name, parameter, self._parameters)

    def register_buffer(self, name, tensor, persistent=True):
        """Register a Tensor that is moved and, if persistent, saved with the Module, not trained; or None."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise KindError(f"register_buffer: {name} is a {type(tensor).__name__}, wanted a Tensor or None")
        self._refuse_taken(name, self._buffers)
        self._register(name, tensor, self._buffers)
        (self._non_persistent.discard if persistent else self._non_persistent.add)(name)

    def add_module(self, name, module):
        """Register a Module under a name that need not be an identifier, such as "0"; or None."""
        if isinstance(module, type):
            kind = module.__name__
            raise KindError(f"add_module: {name} is the class {kind}, wanted a Module or None; make one by {kind}(...)")
        if module is not None and not isinstance(module, Module):
            several = isinstance(module, list | tuple)
            hint = "; give them one by one, as in Sequential(*modules)" if several else ""
            raise KindError(f"add_module: {name} is a {type(module).__name__}, wanted a Module or None{hint}")
        self._refuse_taken(name, self._modules)
        self._register(name, module, self._modules)

    register_module = add_module

    # ---- the parts ---------------------------------------------------------------------------------------------

    def named_modules(self, prefix="", remove_duplicate=True):
        """(name, Module) for this Module, whose name is the prefix, and all below it; shared ones once."""
        yield from self._named_modules(prefix, set() if remove_duplicate else None)

    def _named_modules(self, prefix, seen):
        if seen is not None and self in seen:
            return
        if seen is not None:
            seen.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module._named_modules(f"{prefix}.{name}" if prefix else name, seen)

    def _named(self, registry, prefix, recurse, remove_duplicate):
        modules = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]
        seen = set()
        for path, module in modules:
            for name, tensor in getattr(module, registry).items():
                if tensor is not None and not (remove_duplicate and tensor in seen):
                    seen.add(tensor)
                    yield f"{path}.{name}" if path else name, tensor

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """(name, Parameter) for the parameters of this Module and those below it; shared ones once."""
        yield from self._named("_parameters", prefix, recurse, remove_duplicate)

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """(name, Tensor) for the buffers of this Module and those below it; shared ones once."""
        yield from self._named("_buffers", prefix, recurse, remove_duplicate)

    def named_children(self):
        """(name, Module) for the Modules directly below this one; shared ones once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def get_submodule(self, target):
        """The Module of this name below this one, such as "1.conv"; for "" this one itself."""
        if not isinstance(target, str):
            raise KindError(f"get_submodule: target is {target!r}, wanted names joined by dots, such as '1.conv'")
        module = self
        for name in target.split(".") if target else ():
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise KindError(f"get_submodule: {name} of {target} is a {type(module).__name__}, wanted a Module")
        return module

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

    # ---- changes to all parts ----------------------------------------------------------------------------------

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

    to, float, double, cpu, cuda = to, float, double, cpu, cuda
    half, bfloat16 = half, bfloat16
    state_dict = state_dict
    load_state_dict = load_state_dict

    # ---- text --------------------------------------------------------------------------------------------------

    def extra_repr(self):
        """What stands between the parentheses of the layer's text; subclasses define it."""
        return ""

    def __repr__(self):
        extra = [line for line in self.extra_repr().split("\n") if line]
        parts = [f"({name}): {module!r}".replace("\n", "\n  ") for name, module in self._modules.items()]
        if not parts and len(extra) <= 1:
            return f"{type(self).__name__}({''.join(extra)})"
        return f"{type(self).__name__}(\n  " + "\n  ".join(extra + parts) + "\n)"

    def _repr_html_(self):
        text, parameters = repr(self), list(self.parameters())
        count = sum(math.prod(parameter.shape) for parameter in parameters)
        places = " and ".join(sorted({f"{parameter.dtype} on {parameter.device}" for parameter in parameters}))
        facts = f"{type(self).__name__}: {count:,} parameters" + (f", {places}" if places else "")
        state = "" if text.count("\n") > 30 else ' open=""'
        summary = f"<summary><b>{html.escape(facts)}</b></summary>"
        return f"<details{state}>{summary}<pre>{html.escape(text)}</pre></details>"
