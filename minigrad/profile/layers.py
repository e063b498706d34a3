"""Which layer an operation belongs to.

A layer is a Module, known by its dotted name. An operation belongs to the layer of which it reads a parameter or a
buffer, wherever it runs: one that waited to be fused with the next runs when another layer is called already. What is
computed from parameters of one layer alone, such as their copies in 16 bits, stands for them. An operation that reads
none belongs to the layer that is being called.
"""

import weakref

from .spans import OUTSIDE

__all__ = ["Layers"]


class Layers:
    """The names of Modules, and whose each parameter is.

    model   whose parts are named as its named_modules() names them. A Module that is no part of it, and without a
            model each that is called from outside, names its own parts; from the second on after its class.
    """

    def __init__(self, model=None):
        self.names = weakref.WeakKeyDictionary()  # {Module: layer}
        self.types, self.parameters = {}, {}  # {layer: name of the class}, {layer: bytes of its own parameters}
        self.roots = {}  # {layer: the layer that was called from outside}
        self._tensors, self._owners = weakref.WeakValueDictionary(), {}  # by the id of a Tensor: itself, its layer
        if model is not None:
            self._name(model, OUTSIDE)

    def of(self, module, inside):
        """The layer that a Module is, called inside the layer of that name."""
        if module not in self.names:
            self._name(module, inside)
        return self.names[module]

    def _name(self, root, inside):
        kind, top = type(root).__name__, self.roots.get(inside)
        before = [f"{inside}.{kind}"] if inside else [kind] if self.types else []
        for path, module in root.named_modules():
            if module in self.names:
                continue
            number, name = 2, (wanted := ".".join([*before, *([path] if path else [])]) or kind)
            while name in self.types:
                name, number = f"{wanted} ({number})", number + 1
            top = top or name
            self.names[module], self.types[name], self.roots[name] = name, type(module).__name__, top
            parameters = list(module.parameters(recurse=False))
            self.parameters[name] = sum(parameter.array.nbytes for parameter in parameters)
            self.own([*parameters, *module.buffers(recurse=False)], name)

    def holds(self, outer, inner):
        """Whether a layer is a part of another."""
        return inner != outer and (inner.startswith(f"{outer}.") or self.roots.get(inner) == outer)

    def own(self, tensors, layer):
        """Say that Tensors belong to a layer, but those that belong to another already."""
        for tensor in tensors:
            if id(tensor) not in self._tensors:
                self._tensors[id(tensor)], self._owners[id(tensor)] = tensor, layer

    def owners(self, tensors):
        """The layer of each Tensor, OUTSIDE for those of none."""
        return [self._owners[id(one)] if id(one) in self._tensors else OUTSIDE for one in tensors]
