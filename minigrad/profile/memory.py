"""Memory over a profile, by what it is for.

parameters      leaves that require a gradient and were seen, and the parameters and buffers of the model
gradients       .grad of those
optimiser       the state of the optimisers: momentum, averages of squares, ...
activations     what the tape keeps for backward beside parameters: inputs and results of layers, until their gradients
                have been computed or the graph is dropped
other           what else arrays hold of the memory pool of the device: gradients on their way through the tape, data,
                results that someone else keeps; what lives only within an operation is gone when memory is looked at.
                Arrays on the CPU below 16 KiB are not of the pool, and the device "interpreter" has none

Memory that several categories share counts for the first of them. It is looked at after each operation, after the
gradients of each, and after each update. Nothing is kept alive by looking.
"""

import functools
import weakref

from .. import device
from ..core.tensor import Tensor

__all__ = ["CATEGORIES", "Memory"]

CATEGORIES = ("parameters", "gradients", "optimiser", "activations", "other")


class Memory:
    """The memory of one device over time.

    samples     [(seconds since the begin, {category: bytes})]
    """

    def __init__(self, model=None, optimizer=None):
        self.samples, self.place = [], None
        self.leaves, self.optimizers = {}, {}  # {id: weak reference}
        self.states = []  # the arrays of the optimisers, as weak references
        self.nodes, self.tape = {}, {}  # {id of a node: (weak reference, Blocks)}, {key: [Block, nodes that keep it]}
        self.known = {}  # {id of an array: (weak reference, its Block or None)}
        for one in [] if model is None else [*model.parameters(), *model.buffers()]:
            self._see(one)
        if optimizer is not None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self._see(parameter)
            self.updated(optimizer)

    # ---- what there is -------------------------------------------------------------------------------------------

    def _see(self, leaf):
        if id(leaf) not in self.leaves:
            forget = functools.partial(_forget, self.leaves, id(leaf))
            self.leaves[id(leaf)] = weakref.ref(leaf, forget)
            if self.place is None:
                self.place = device.place_of(leaf.array)

    def see(self, values):
        """Take note of the leaves among the arguments of an operation, and of the device of the first."""
        for value in values:
            for one in value if type(value) is tuple else (value,):
                if isinstance(one, Tensor):
                    if one._requires_grad and one.node is None:
                        self._see(one)
                    elif self.place is None:
                        self.place = device.place_of(one._data)

    def kept(self, node):
        """Take note of a new node of the tape; the bytes that nothing kept before."""
        new, blocks = 0, []
        for value in node.kept.values():
            for one in value if type(value) is tuple else (value,):
                array = getattr(one, "_data", one)
                if not device.is_array(array) or device.place_of(array) is not self.place:
                    continue
                block = self.place.block(array)
                if isinstance(one, Tensor) and id(one) in self.leaves or block.key in (known.key for known in blocks):
                    continue
                blocks.append(block)
                entry = self.tape.setdefault(block.key, [block, 0])
                new += 0 if entry[1] else block.nbytes
                entry[1] += 1
        self.nodes[id(node)] = weakref.ref(node, functools.partial(self._dropped, id(node))), blocks
        return new

    def freed(self, node):
        """Take note that a node has let go of what it kept."""
        self._dropped(id(node))

    def _dropped(self, key, reference=None):
        _, blocks = self.nodes.pop(key, (None, ()))
        for block in blocks:
            entry = self.tape[block.key]
            entry[1] -= 1
            if not entry[1]:
                del self.tape[block.key]

    def updated(self, optimizer):
        """Take note of the state of an optimiser, which its step may have made."""
        self.optimizers[id(optimizer)] = weakref.ref(optimizer)
        self.states = []
        for reference in list(self.optimizers.values()):
            if (one := reference()) is not None:
                arrays = [value for state in one.state.values() for value in state.values() if device.is_array(value)]
                self.states += [weakref.ref(array) for array in arrays]

    # ---- how much of it ------------------------------------------------------------------------------------------

    def sample(self, seconds):
        """Add a sample; none before anything has been seen."""
        if self.place is None:
            return
        seen, pooled, found = set(), 0, dict.fromkeys(CATEGORIES, 0)
        leaves = [leaf for reference in list(self.leaves.values()) if (leaf := reference()) is not None]
        arrays = {
            "parameters": [leaf._data for leaf in leaves],
            "gradients": [leaf.grad._data for leaf in leaves if leaf.grad is not None],
            "optimiser": [array for reference in self.states if (array := reference()) is not None],
        }
        blocks = [(category, self._block(array)) for category, several in arrays.items() for array in several]
        blocks += [("activations", block) for block, _ in list(self.tape.values())]
        for category, block in blocks:
            if block is None:
                continue
            shared = block.key in seen
            if not shared:
                seen.add(block.key)
                pooled += block.pooled
            if not (shared and category == "activations"):
                found[category] += block.nbytes
        found["other"] = max(0, self.place.statistics().get("used_bytes", 0) - pooled)
        self.samples.append((seconds, found))

    def _block(self, array):
        """The Block of an array on the device that is looked at; None for one elsewhere."""
        reference, block = self.known.get(id(array), _UNKNOWN)
        if reference() is not array:
            block = None
            if device.place_of(array) is self.place:
                block = self.place.block(array)._replace(nbytes=array.nbytes)
            self.known[id(array)] = weakref.ref(array), block
        return block


def _nothing():
    """In place of a weak reference to an array that was never seen."""


_UNKNOWN = _nothing, None


def _forget(dictionary, key, reference):
    dictionary.pop(key, None)
