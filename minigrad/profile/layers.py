"""Which layer a call belongs to: dotted names of Modules, by the stack of those that are being called."""

import weakref

from .spans import OUTSIDE

__all__ = ["Layers"]


class Layers:
    """The names of Modules, and for nodes of the tape the layers that made them.

    model   whose parts are named as its named_modules() names them. A Module that is no part of it, and without a
            model each that is called from outside, names its own parts; from the second on after its class.
    """

    def __init__(self, model=None):
        self.names = weakref.WeakKeyDictionary()  # {Module: layer}
        self.types, self.parameters = {}, {}  # {layer: name of the class}, {layer: bytes of its own parameters}
        self.roots = {}  # {layer: the layer that was called from outside}
        self.nodes = {}  # {order of a node: (layer, layers joined to it)}
        self.first = True
        if model is not None:
            self._name_all(model)

    def of(self, module, inside):
        """The layer that a Module is, called inside the layer of that name."""
        found = self.names.get(module)
        if found is None:
            if inside:  # made while its parent was called
                self._name(module, f"{inside}.{type(module).__name__}")
            else:
                self._name_all(module)
            found = self.names[module]
        return found

    def _name_all(self, root):
        kind, top = type(root).__name__, None
        for path, module in root.named_modules():
            if module not in self.names:
                name = self._name(module, path if path and self.first else f"{kind}.{path}" if path else kind)
                top = top or name
                self.roots[name] = top
        self.first = False

    def _name(self, module, name):
        number, taken = 2, name
        while name in self.types:
            name, number = f"{taken} ({number})", number + 1
        self.names[module], self.types[name] = name, type(module).__name__
        own = [tensor for tensor in module._parameters.values() if tensor is not None]
        self.parameters[name] = sum(tensor.array.nbytes for tensor in own)
        return name

    def holds(self, outer, inner):
        """Whether a layer is a part of another."""
        return inner != outer and (inner.startswith(f"{outer}.") or self.roots.get(inner) == outer)

    def remember(self, result, layer, joined):
        """Note which layer made the node of a result, for when its gradients are asked for."""
        for tensor in result if type(result) is tuple else (result,):
            if tensor.node is not None:
                self.nodes[tensor.node.order] = layer, joined
                return tensor.node
        return None

    def of_node(self, node):
        """(layer, layers joined to it) of a node; OUTSIDE for one that was made before the profile began."""
        return self.nodes.get(node.order, (OUTSIDE, ()))
