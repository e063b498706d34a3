"""Containers: layers in a row, in a list, under names; and a list of parameters."""

from collections.abc import MutableMapping

from minigrad_kernels.errors import MissingError

from .module import Module
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterList", "Sequential"]


class _Row(Module):
    """Parts in an order, named by their numbers; kind: of which kind they are."""

    kind: type = Module
    _put = Module.add_module

    def append(self, part):
        """Add one at the end; returns self."""
        self._put(str(len(self)), part)
        return self

    def extend(self, parts):
        """Add several at the end; returns self."""
        for part in list(parts):  # which may be this container itself, and grow
            self.append(part)
        return self

    def __len__(self):
        return len(self._parts(self.kind))

    def __iter__(self):
        return iter(self._parts(self.kind).values())

    def __iadd__(self, parts):
        return self.extend(parts)

    def __getitem__(self, index):
        found = list(self)[index]
        return type(self)(found) if isinstance(index, slice) else found

    def __setitem__(self, index, part):
        self._put(list(self._parts(self.kind))[index], part)

    def __delitem__(self, index):
        names, rest = list(self._parts(self.kind)), list(self)
        del rest[index]
        for name in names:
            delattr(self, name)
        self.extend(rest)  # as in PyTorch, under numbers without a gap


class Sequential(_Row):
    """Layers one after the other: the output of each is the input of the next.

    modules     the layers, named "0", "1", ...; or one dictionary from names to layers
    seq[i] is a layer, seq[i:j] a Sequential of the same layers under the same names
    """

    def __init__(self, *modules):
        named = len(modules) == 1 and isinstance(modules[0], dict)
        for name, module in modules[0].items() if named else enumerate(modules):
            self.add_module(str(name), module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return super().__getitem__(index)


class ModuleList(_Row):
    """A list of layers, whose parameters are found; what to do with them says the forward of the owner.

    modules     the layers
    list[i] is a layer, list[i:j] a ModuleList; append, extend, del and += as in a list
    """

    def __init__(self, modules=None):
        self.extend([] if modules is None else modules)


class ModuleDict(Module, MutableMapping):
    """Layers under names, in the order in which they came; what to do with them says the forward of the owner.

    modules     a dictionary from names to layers, or pairs of both
    It has the methods of a dictionary.
    """

    __eq__, __hash__ = Module.__eq__, Module.__hash__  # a layer equals itself alone, whatever it holds

    def __init__(self, modules=None):
        self.update({} if modules is None else modules)

    def __getitem__(self, key):
        if key not in self._modules:
            raise MissingError(f"ModuleDict: key is {key!r}, wanted one of {list(self._modules)}")
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        delattr(self, key)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)


class ParameterList(_Row):
    """A list of parameters; Tensors become Parameters.

    values      Parameters or Tensors
    list[i] is a Parameter, list[i:j] a ParameterList; append, extend, del and += as in a list
    """

    kind = Parameter

    def __init__(self, values=None):
        self.extend([] if values is None else values)

    def _put(self, name, value):
        self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))
