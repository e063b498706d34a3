"""Where a Sequential is cut into the stages of a pipeline: contiguous runs of layers that cost about the same.

Math    the cost of a layer is its share of the bytes of all parameters; of all ways to cut, the one whose costliest
        stage costs least, found by dynamic programming over (stages, layers)
"""

import functools
import itertools

from minigrad_kernels.errors import ShapeError, StateError

from ..core.check import integer_of

__all__ = ["balanced", "costs_of", "lengths_of"]

SPREAD = 0.01  # the part of the cost that is equal for all layers, so that those without parameters are spread too


def costs_of(model):
    """For each layer of a Sequential its share of the parameters' bytes."""
    sizes = [sum(p.array.nbytes for p in layer.parameters()) for layer in model._modules.values()]
    return [SPREAD / len(sizes) + size / (sum(sizes) or 1) for size in sizes]


def balanced(costs, stages):
    """How many layers each stage takes, so that the costliest stage costs as little as can be."""
    ends = [0, *itertools.accumulate(costs)]

    @functools.cache
    def best(end, stages):
        """(the costliest stage, lengths) of the first so many layers."""
        if stages == 1:
            return ends[end], (end,)
        starts = [(start, *best(start, stages - 1)) for start in range(stages - 1, end)]
        return min((max(worst, ends[end] - ends[start]), (*lengths, end - start)) for start, worst, lengths in starts)

    return list(best(len(costs), stages)[1])


def lengths_of(model, stages, balance):
    """How many layers of a Sequential each stage takes: `balance` if it is possible, else balanced by costs_of.

    Errors  ValueError for fewer layers than stages and for a balance that does not fit; RuntimeError where two stages
            would share a Tensor
    """
    layers = len(model)
    if stages > layers:
        raise ShapeError(f"Pipeline: stages is {stages}, wanted at most one for each of the {layers} layers")
    lengths = balanced(costs_of(model), stages) if balance is None else list(balance)
    for length in lengths:
        integer_of("Pipeline", "balance", length, 1)
    if len(lengths) != stages or sum(lengths) != layers:
        raise ShapeError(f"Pipeline: balance is {lengths}, wanted {stages} numbers that add up to {layers} layers")
    _refuse_shared(model, lengths)
    return lengths


def _refuse_shared(model, lengths):
    """A Tensor in two stages would be two Tensors from then on."""
    stage_of = {}
    stages = [stage for stage, length in enumerate(lengths) for _ in range(length)]
    for stage, (name, layer) in zip(stages, model._modules.items(), strict=True):
        for tensor in (*layer.parameters(), *layer.buffers()):
            first, other = stage_of.setdefault(tensor, (stage, name))
            if first != stage:
                raise StateError(
                    f"Pipeline: layers {other} and {name} share a Tensor of shape {tensor.shape}, but are in stages "
                    f"{first} and {stage}; put them into one, by balance=[...]"
                )
