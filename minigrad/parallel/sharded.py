"""ShardedOptimizer: each rank keeps the state of, and updates, its own part of the parameters.

Adam holds two numbers for every parameter. Where n ranks hold the same model, each needs to hold them for one part in
n only: it updates these parameters by its part of the averaged gradients, and then all ranks get all parameters
(all-gather).

Source  Rajbhandari and others 2020, "ZeRO: memory optimizations toward training trillion parameter models", stage 1
"""

import pickle
from collections import defaultdict
from typing import NamedTuple

from minigrad_kernels.errors import KindError, StateError

from .. import device
from ..core.tape import write
from ..core.tensor import Tensor
from ..optim import Optimizer
from .buckets import buckets_of
from .collectives import flat_of
from .data_parallel import DataParallel

__all__ = ["ShardedOptimizer"]


class _Piece(NamedTuple):
    """What this rank owns of a parameter: elements start to stop of it, in the order of memory."""

    parameter: Tensor
    leaf: Tensor  # these elements, to be updated
    start: int
    stop: int


class ShardedOptimizer(Optimizer):
    """An optimiser whose state is divided among the ranks of a DataParallel model.

    optimizer   with any options; its state, if any, is the same on all ranks
    model       the DataParallel model, which averages the gradients

    It gives the same bits as the optimiser alone. Options and schedules are those of the optimiser. All ranks call
    state_dict together; it holds the state of all parameters, so a checkpoint does not depend on the number of ranks.
    """

    def __init__(self, optimizer, model):
        if not isinstance(optimizer, Optimizer) or not isinstance(model, DataParallel):
            kinds = f"{type(optimizer).__name__} and {type(model).__name__}"
            raise KindError(f"ShardedOptimizer: got {kinds}, wanted an Optimizer and a DataParallel model")
        self.optimizer, self.world = optimizer, model.world
        self.defaults, self.param_groups = optimizer.defaults, optimizer.param_groups
        order = [parameter for group in self.param_groups for parameter in group["params"]]
        self._index = {parameter: i for i, parameter in enumerate(order)}
        self.buckets = buckets_of(order, self.world.size)
        self._gather()
        self.pieces = [piece for bucket in self.buckets for piece in self._pieces(bucket)]
        leaf_of = {piece.parameter: piece.leaf for piece in self.pieces}  # one at most, as its elements lie together
        groups = [
            {**_options(group), "params": [leaf_of[p] for p in group["params"] if p in leaf_of]}
            for group in self.param_groups
        ]
        self.own = type(optimizer)(groups)
        self.own.defaults = self.defaults
        self._keep_own_part()

    @property
    def name(self):
        return self.optimizer.name

    @property
    def state(self):
        """That of the optimiser of this rank's part."""
        return self.own.state

    def _gather(self):
        """Have the parameters look at their places in the buckets, also those that were given other arrays since."""
        for bucket in self.buckets:
            bucket.gather([parameter.array for parameter in bucket.tensors])
            bucket.scatter()

    def _own_part(self, array):
        step = array.size // self.world.size
        return array[self.world.rank * step : (self.world.rank + 1) * step]

    def _pieces(self, bucket):
        step = bucket.size // self.world.size
        low, high = self.world.rank * step, (self.world.rank + 1) * step
        for i, parameter in enumerate(bucket.tensors):
            begin, end = bucket.starts[i], bucket.starts[i + 1]
            start, stop = max(begin, low), min(end, high)
            if start < stop:
                yield _Piece(parameter, Tensor(bucket.array[start:stop]), start - begin, stop - begin)

    def add_param_group(self, param_group):
        raise StateError("ShardedOptimizer: parameters are divided already; add the group before wrapping")

    def step(self, *, scale=None, found_inf=None):
        """Update this rank's parameters by its part of the gradients, then take those of all ranks."""
        for own, group in zip(self.own.param_groups, self.param_groups, strict=True):
            own.update(_options(group))
        self._gather()
        for piece in self.pieces:
            piece.leaf.grad = self._gradient(piece)
        self.own.step(scale=scale, found_inf=found_inf)
        works = []
        for bucket in self.buckets:
            part = self._own_part(bucket.array)
            works.append(self.world.all_gather(bucket.array, part, label="parameters", asynchronous=True))
        for bucket, work in zip(self.buckets, works, strict=True):
            work.wait()
            for parameter in bucket.tensors:
                write(parameter)

    def _gradient(self, piece):
        gradient = piece.parameter.grad
        if gradient is None:
            return None
        order = device.order_of(piece.parameter.array)
        flat = flat_of("step", "a gradient", device.contiguous(gradient.array, order), False)
        return Tensor.made(flat[piece.start : piece.stop])

    def settle(self):
        """As Optimizer.settle, for this rank's part."""
        self.own.settle()

    # ---- state ---------------------------------------------------------------------------------------------------

    def state_dict(self):
        """The state of all parameters, gathered from all ranks, as the optimiser alone would give it."""
        self.settle()
        order = list(self._index)
        mine = []
        for piece in self.pieces:
            state = self.own.state.get(piece.leaf, {})
            values = {name: device.host(value) if device.is_array(value) else value for name, value in state.items()}
            mine.append((self._index[piece.parameter], piece.start, values))
        whole = {}
        for message in self.world.all_gather_bytes(pickle.dumps(mine)):
            for i, start, values in pickle.loads(message):
                entries = whole.setdefault(order[i], {}) if values else {}
                for name, value in values.items():
                    if device.is_array(value):
                        all_of_it = entries.setdefault(name, device.empty_like(order[i].array, value.dtype))
                        device.assign(flat_of("state_dict", name, all_of_it)[start : start + value.size], value)
                    else:
                        entries[name] = value
        self.optimizer.state = whole
        found, self.optimizer.state = self.optimizer.state_dict(), {}
        return found

    def load_state_dict(self, state_dict):
        """Take over the state of all parameters; this rank keeps its part. Errors: as Optimizer.load_state_dict."""
        self.settle()
        self.optimizer.load_state_dict(state_dict)
        self._keep_own_part()

    def _keep_own_part(self):
        """Take from the state of all parameters what belongs to this rank."""
        whole, self.optimizer.state = self.optimizer.state, {}
        self.own.state = defaultdict(dict)
        for piece in self.pieces:
            if piece.parameter in whole:
                self.own.state[piece.leaf] = {
                    name: device.copy(flat_of("ShardedOptimizer", name, value, False)[piece.start : piece.stop])
                    if device.is_array(value)
                    else value
                    for name, value in whole[piece.parameter].items()
                }


def _options(group):
    return {name: value for name, value in group.items() if name != "params"}
