"""Containers, and layers that change nothing but the shape."""

from minigrad_kernels.errors import SubscriptError

from .. import ops
from .module import Module
from .options import at_least

__all__ = ["Flatten", "Identity", "Sequential"]


class Sequential(Module):
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

    def append(self, module):
        """Add a layer at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def _name(self, index):
        names = list(self._modules)
        try:
            return names[index]
        except IndexError as error:
            raise SubscriptError(f"Sequential: index is {index}, but there are {len(names)} layers") from error

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return self._modules[self._name(index)]

    def __setitem__(self, index, module):
        self.add_module(self._name(index), module)

    def __delitem__(self, index):
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [self._name(index)]:
            del self._modules[name]
        if all(name.isdigit() for name in names):  # numbers go on counting without a gap
            self.__dict__["_modules"] = {str(i): module for i, module in enumerate(self)}


class Identity(Module):
    """The input itself, whatever the arguments: a place in a network that does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def forward(self, input):
        return input


class Flatten(Module):
    """The dimensions from start_dim to end_dim made into one: (N, C, H, W) -> (N, C * H * W)."""

    def __init__(self, start_dim=1, end_dim=-1):
        self.start_dim = at_least("Flatten", "start_dim", start_dim, -(1 << 31))
        self.end_dim = at_least("Flatten", "end_dim", end_dim, -(1 << 31))

    def forward(self, input):
        return ops.flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
