"""Containers: layers in a row, in a list, under names; and a list of parameters."""

from collections.abc import Mapping

from minigrad_kernels.errors import KindError, MissingError, ShapeError, SubscriptError

from ..core.check import integer_of
from ..core.tensor import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterList", "Sequential"]


def _position(container, index, count):
    """The index counted from the front."""
    position = integer_of(container, "index", index)
    if not -count <= position < count:
        raise SubscriptError(f"{container}: index is {index}, but there are {count} layers")
    return position % count


def _listed(container, name, values, wanted):
    """The values as a list, which may grow while its source does."""
    try:
        return list(values)
    except TypeError:
        raise KindError(f"{container}: {name} is a {type(values).__name__}, wanted {wanted}") from None


class _Row(Module):
    """Layers in an order, named by their numbers."""

    def append(self, module):
        """Add a layer at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Add layers at the end; returns self."""
        for module in _listed(type(self).__name__, "modules", modules, "layers one after the other"):
            self.append(module)
        return self

    def insert(self, index, module):
        """Put a layer before the one at index; returns self."""
        index = integer_of(type(self).__name__, "index", index)
        layers, count = list(self), len(self)
        if not -count <= index <= count:
            raise SubscriptError(f"{type(self).__name__}: index is {index}, wanted {-count} to {count}")
        self.append(module)
        layers.insert(index, module)
        self._renumber(layers)
        return self

    def pop(self, key):
        """Take out the layer at an index, or the layers of a slice, and return it."""
        module = self[key]
        del self[key]
        return module

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __iadd__(self, modules):
        return self.extend(modules)

    def _name(self, index):
        return list(self._modules)[_position(type(self).__name__, index, len(self))]

    def __setitem__(self, index, module):
        self.add_module(self._name(index), module)

    def __delitem__(self, index):
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [self._name(index)]:
            del self._modules[name]
        if all(name.isdigit() for name in names):  # numbers go on counting without a gap
            self._renumber(list(self))

    def _renumber(self, layers):
        self.__dict__["_modules"] = {str(i): module for i, module in enumerate(layers)}


class Sequential(_Row):
    """Layers one after the other: the output of each is the input of the next.

    modules     the layers, named "0", "1", ...; or one dictionary from names to layers
    seq[i] is a layer, seq[i:j] a Sequential of the same layers under the same names
    """

    def __init__(self, *modules):
        named = isinstance(modules[0], dict) if len(modules) == 1 else False
        for name, module in modules[0].items() if named else enumerate(modules):
            self.add_module(str(name), module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def __add__(self, other):
        return Sequential(*self, *other)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return self._modules[self._name(index)]


class ModuleList(_Row):
    """A list of layers, whose parameters are found; what to do with them says the forward of the owner.

    modules     the layers
    list[i] is a layer, list[i:j] a ModuleList; append, extend, insert, pop, del, + and += as in a list
    """

    def __init__(self, modules=None):
        self.extend([] if modules is None else modules)

    def __add__(self, other):
        return ModuleList([*self, *other])

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[self._name(index)]

    def __repr__(self):
        texts = [repr(module) for module in self]
        starts = [i for i, text in enumerate(texts) if not i or text != texts[i - 1]]
        lines = []
        for start, end in zip(starts, [*starts, len(texts)][1:], strict=True):
            head = f"({start}): " if end - start == 1 else f"({start}-{end - 1}): {end - start} x "
            lines.append((head + texts[start]).replace("\n", "\n  "))
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)" if lines else f"{type(self).__name__}()"


class ModuleDict(Module):
    """Layers under names, in the order in which they came; what to do with them says the forward of the owner.

    modules     a dictionary from names to layers, or pairs of both
    """

    def __init__(self, modules=None):
        self.update({} if modules is None else modules)

    def update(self, modules):
        """Add the layers of a dictionary, or of pairs of name and layer."""
        pairs = modules.items() if isinstance(modules, Mapping | ModuleDict) else modules
        pairs = _listed("ModuleDict", "modules", pairs, "a dictionary from names to layers")
        if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
            raise ShapeError(f"ModuleDict: modules is {modules!r}, wanted pairs of name and layer")
        for name, module in pairs:
            self[name] = module

    def __getitem__(self, key):
        if key not in self._modules:
            raise MissingError(f"ModuleDict: key is {key!r}, wanted one of {list(self._modules)}")
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        self.pop(key)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def keys(self):
        """The names."""
        return self._modules.keys()

    def values(self):
        """The layers."""
        return self._modules.values()

    def items(self):
        """Pairs of name and layer."""
        return self._modules.items()

    def pop(self, key):
        """Take out a layer and return it."""
        module = self[key]
        del self._modules[key]
        return module

    def clear(self):
        """Take out all layers."""
        self._modules.clear()


class ParameterList(Module):
    """A list of parameters; Tensors become Parameters.

    values      Parameters or Tensors
    list[i] is a Parameter, list[i:j] a ParameterList
    """

    def __init__(self, values=None):
        self.extend([] if values is None else values)

    def append(self, value):
        """Add a parameter at the end; returns self."""
        return self._put(len(self), value)

    def extend(self, values):
        """Add parameters at the end; returns self."""
        if isinstance(values, Tensor):
            raise KindError(f"ParameterList: values is a {type(values).__name__}, wanted a list of Parameters")
        for value in _listed("ParameterList", "values", values, "a list of Parameters"):
            self.append(value)
        return self

    def _put(self, position, value):
        if not isinstance(value, Tensor):
            raise KindError(f"ParameterList: element {position} is a {type(value).__name__}, wanted a Tensor")
        self.register_parameter(str(position), value if isinstance(value, Parameter) else Parameter(value))
        return self

    def __len__(self):
        return len(self._parameters)

    def __iter__(self):
        return iter(list(self._parameters.values()))

    def __iadd__(self, values):
        return self.extend(values)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._parameters[str(_position("ParameterList", index, len(self)))]

    def __setitem__(self, index, value):
        self._put(_position("ParameterList", index, len(self)), value)

    def extra_repr(self):
        return "\n".join(f"({i}): Parameter of shape {p.shape}, {p.dtype}" for i, p in enumerate(self))
