"""What the model must know of a network: its gradients in the order of their arrival, and what it keeps for backward.

Backward takes the layers from the last to the first. A convolution or a linear layer costs its multiply-adds in
forward, and twice as many in backward, once for the gradient of its weights and once for that of its input; the first
layer's input needs none. Other layers cost nothing here.

Math    share_i = sum of the backward costs of layer i and of all after it / sum of all
        backward share of a step = sum of backward costs / sum of forward and backward costs
"""

from dataclasses import dataclass

from minigrad_kernels.errors import ShapeError

__all__ = ["Layer", "Network", "assembled", "check_known"]


@dataclass(frozen=True)
class Layer:
    """parameters   elements of each, in the order of registration
    macs            multiply-adds for one image
    kept            bytes for one image that wait for backward
    output          bytes of the result for one image
    """

    parameters: tuple = ()
    macs: int = 0
    kept: int = 0
    output: int = 0


@dataclass(frozen=True)
class Network:
    """A network as the model sees it.

    sizes       elements of each parameter in the order in which gradients arrive
    ready       for each, the share of backward (0 to 1) after which its gradient is complete
    backward    the share of backward in a step
    kept        bytes for one image that wait for backward
    moving      bytes for one image of the largest gradients on their way through backward
    batch       images of a step of `seconds`
    seconds     of a step on one GPU
    origin      where batch and seconds come from, in words
    """

    name: str
    sizes: tuple
    ready: tuple
    backward: float
    kept: float
    moving: float
    batch: int
    seconds: float
    origin: str

    @property
    def parameters(self):
        """Elements of all parameters."""
        return sum(self.sizes)


def check_known(what, name, known):
    """Refuse a name that is none of those known."""
    if name not in known:
        raise ShapeError(f"scale: {what} is {name!r}, want one of {', '.join(known)}")


def backward_costs(macs):
    """Multiply-adds of backward for each layer, given those of forward in the order of forward."""
    first = next((index for index, count in enumerate(macs) if count), None)
    return [count if index == first else 2 * count for index, count in enumerate(macs)]


def shares(costs):
    """For each layer the share of backward after which it is done, given costs in the order of forward.

    Layers that cost nothing at all are done as backward ends.
    """
    total = sum(costs)
    if not total:
        return [1.0] * len(costs)
    found, spent = [], 0
    for cost in reversed(costs):
        spent += cost
        found.append(spent / total)
    return found[::-1]


def backward_share(macs):
    """The share of backward in a step; two thirds where nothing is known."""
    backward = sum(backward_costs(macs))
    return backward / (backward + sum(macs)) if backward else 2 / 3


def assembled(name, layers, batch, seconds, origin):
    """A Network of a list of Layers in the order of forward. Errors: ValueError if there are no parameters."""
    macs = [layer.macs for layer in layers]
    done = shares(backward_costs(macs))
    arriving = [
        (size, share)
        for layer, share in zip(reversed(layers), reversed(done), strict=True)
        for size in reversed(layer.parameters)
    ]
    if not arriving:
        raise ShapeError(f"network: {name} has no parameters, so there is nothing to exchange")
    sizes, ready = zip(*arriving, strict=True)
    # The gradient that a layer is given and the one that it makes are there together.
    moving = 2 * max(layer.output for layer in layers)
    kept = sum(layer.kept for layer in layers)
    return Network(name, sizes, ready, backward_share(macs), kept, moving, batch, seconds, origin)
