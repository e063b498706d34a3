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

import weakref

from .. import device

CATEGORIES = ("parameters", "gradients", "optimiser", "activations", "other")


def flat(values):
    """The values, those in tuples one by one."""
    return [one for value in values for one in (value if type(value) is tuple else (value,))]


class Memory:
    """The memory of one device over time.

    samples     [(seconds since the begin, {category: bytes})]
    """

    def __init__(self, model=None, optimizer=None):
        self.samples, self.place = [], None
        self.leaves = weakref.WeakValueDictionary()  # {id: leaf}: a set would compare Tensors by their elements
        self.nodes, self.optimizers = weakref.WeakSet(), weakref.WeakSet()
        self.see([] if model is None else [*model.parameters(), *model.buffers()], True)
        if optimizer is not None:
            self.updated(optimizer)

    def see(self, tensors, every=False):
        """Take note of the leaves among Tensors that require a gradient, or of every one; of the first one's device."""
        for one in tensors:
            if self.place is None:
                self.place = device.place_of(one.array)
            if every or one.requires_grad and one.is_leaf:
                self.leaves[id(one)] = one

    def updated(self, optimizer):
        """Take note of an optimiser that has done a step."""
        self.optimizers.add(optimizer)
        self.see([parameter for group in optimizer.param_groups for parameter in group["params"]], True)

    def _held(self):
        """(category, array) of all that is known."""
        leaves = list(self.leaves.values())
        yield from (("parameters", leaf.array) for leaf in leaves)
        yield from (("gradients", leaf.grad.array) for leaf in leaves if leaf.grad is not None)
        states = [state for optimizer in self.optimizers for state in optimizer.state.values()]
        yield from (("optimiser", value) for state in states for value in state.values())
        yield from (("activations", value) for node in self.nodes for value in flat(node.kept.values()))

    def sample(self, seconds):
        """Add a sample, none before anything was seen; the bytes by which activations have grown since the last."""
        if self.place is None:
            return 0
        found, pooled = dict.fromkeys(CATEGORIES, 0), {}
        for category, value in self._held():
            array = getattr(value, "_data", value)
            if device.is_array(array) and device.place_of(array) is self.place:
                block = self.place.block(array)
                if category != "activations":
                    found[category] += array.nbytes
                elif block.key not in pooled:
                    found[category] += block.nbytes
                pooled[block.key] = block.pooled
        found["other"] = max(0, self.place.statistics().get("used_bytes", 0) - sum(pooled.values()))
        before = self.samples[-1][1]["activations"] if self.samples else 0
        self.samples.append((seconds, found))
        return max(0, found["activations"] - before)
