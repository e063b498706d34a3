"""Which layer an operation belongs to.

A layer is a Module, known by its dotted name. An operation belongs to the layer of which it reads a parameter or a
buffer, wherever it runs: one that waited to be fused with the next runs when another layer is called already. What is
computed from parameters of one layer alone, such as their copies in 16 bits, stands for them. An operation that reads
none belongs to the layer that is being called.
"""

import weakref

from .tables import OUTSIDE


class Layers:
    """The names of Modules, and whose each parameter is.

    model   whose parts are named as its named_modules() names them; without one, so are those of the Module that is
            called first. A Module that is no part of it is named after its class and the layer in which it is called
    """

    def __init__(self, model=None):
        self.names = weakref.WeakKeyDictionary()  # {Module: layer}
        self.types = {}  # {layer: name of the class}
        self._tensors, self._owners = weakref.WeakValueDictionary(), {}  # by the id of a Tensor: itself, its layer
        if model is not None:
            self.of(model, OUTSIDE)

    def of(self, module, inside):
        """The layer that a Module is, called inside the layer of that name."""
        if module not in self.names:
            before = [inside, type(module).__name__] if self.types else []
            new = [(path, part) for path, part in module.named_modules() if part not in self.names]
            for path, part in new:
                name = ".".join(filter(None, [*before, path])) or type(module).__name__
                self.names[part], self.types[name] = name, type(part).__name__
                self.own([*part.parameters(recurse=False), *part.buffers(recurse=False)], name)
        return self.names[module]

    def own(self, tensors, layer):
        """Say that Tensors belong to a layer, but those that belong to another already."""
        for tensor in tensors:
            if id(tensor) not in self._tensors:
                self._tensors[id(tensor)], self._owners[id(tensor)] = tensor, layer

    def owners(self, tensors):
        """The layer of each Tensor, OUTSIDE for those of none."""
        return [self._owners[id(one)] if id(one) in self._tensors else OUTSIDE for one in tensors]
