"""Activations that are computed again instead of being kept.

`recompute(function, x)` gives what function(x) gives, but what the operations inside would keep for backward is let go
of. The first time that backward comes to one of them, the function runs once more, and what its operations keep is
handed to those of the first run. So a network takes the memory of its largest part, for one more forward pass.

Source  Chen and others 2016, "Training deep nets with sublinear memory cost"; in the form of
        torch.utils.checkpoint.checkpoint
"""

import contextvars
import weakref

from minigrad_kernels.errors import KindError, StateError

from . import fusion
from .core.interceptors import Interceptor, interceptors, proceed
from .core.modes import repeating
from .core.tensor import Leaf, Target, Tensor
from .device import random

__all__ = ["recompute"]


def recompute(function, *inputs, **options):
    """function(*inputs, **options), whose activations are computed again in backward instead of being kept.

    function    must do the same both times; returns Tensors, alone or in tuples, lists and dictionaries
    inputs      stay alive until backward, and so does all that the function refers to

    The function runs again in the modes of now (autocast, no_grad, deterministic, ...) and with the random numbers of
    now; running statistics of batch norm take part of a batch once. Values and gradients are those without recompute,
    bit for bit, but where a Module fuses an operation inside with one outside. Gradients reach the inputs and all else
    that the function uses; they may be differentiated. A call within another one is like the function itself.
    Errors  TypeError if function cannot be called; RuntimeError in backward if it does something else than before, or
            inputs or parameters were changed since
    """
    if not callable(function):
        raise KindError(f"recompute: function is a {type(function).__name__}, wanted one that can be called")
    if any(isinstance(one, _Part) for one in interceptors()):  # within another, which keeps nothing anyway
        return function(*inputs, **options)
    part = _Part(function, inputs, options)
    result, nodes = part.run()
    part.forget(nodes)
    return result


def _tensors(value):
    """The Tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [tensor for entry in entries for tensor in _tensors(entry)]


def _moved(value, first):
    """The value, Tensors in it as results of the nodes of the first run, so that derivatives of gradients go there."""
    if isinstance(value, Tensor) and value.node in first:
        return Tensor.made(value.array, Target(first[value.node], value.target.output), value.version)
    return tuple([_moved(one, first) for one in value]) if type(value) is tuple else value


class _Forgotten(dict):
    """What a node has instead of the values that it keeps."""

    def __init__(self, part):
        super().__init__()
        self.restore = part.restore


class _Part(Interceptor):
    """One call of recompute, which notes the nodes that its operations leave on the tape."""

    def __init__(self, function, inputs, options):
        self.function, self.inputs, self.options = function, inputs, options
        self.context, self.source = contextvars.copy_context(), random.generator().twin()
        self.names, self.waiting = [], []  # of each operation, and a weak reference to its node

    def run(self):
        """(the result of the function, the nodes of its operations)."""
        with fusion.apart(), self:
            self.nodes = []
            result = self.function(*self.inputs, **self.options)
        nodes, self.nodes = self.nodes, []
        return result, nodes

    def apply(self, primitive, values, below):
        result = proceed(below, primitive, values)
        made = [one.node for one in (result if type(result) is tuple else (result,)) if one.node is not None]
        self.nodes += made[:1]
        return result

    def forget(self, nodes):
        """Let go of what the nodes keep; what the function will read again must stay as it is until then."""
        given = [("an input", tensor.version) for tensor in _tensors([self.inputs, self.options])]
        for node in nodes:
            held = [(edge.name, edge.target.node.tensor) for edge in node.edges if isinstance(edge.target.node, Leaf)]
            leaves = [(name, leaf.version) for name, leaf in held if leaf is not None]
            node.versions += [(name, version, version[0]) for name, version in leaves + given]
            self.names.append(node.primitive.name)
            self.waiting.append(weakref.ref(node))
            node.kept = _Forgotten(self)

    def restore(self):
        """Run the function again, as it ran before, and give the nodes what they keep."""
        nodes = self.context.copy().run(self._again)
        names = [node.primitive.name for node in nodes]
        if names != self.names:
            name = getattr(self.function, "__qualname__", type(self.function).__name__)
            raise StateError(
                f"recompute: {name} applied {' '.join(names) or 'nothing'} in backward, before it was "
                f"{' '.join(self.names)}; wanted a function that does the same again"
            )
        first = {twin: node for twin, waiting in zip(nodes, self.waiting, strict=True) if (node := waiting())}
        for twin, node in first.items():
            if type(node.kept) is _Forgotten:  # neither freed nor restored
                node.kept = {name: _moved(value, first) for name, value in twin.kept.items()}
                node.versions = twin.versions

    def _again(self):
        with repeating.setting(True), random.drawing_from(self.source.twin()):
            return self.run()[1]
