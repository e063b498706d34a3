"""ShardedOptimizer: each rank keeps the state of, and updates, its own part of the parameters.

Adam holds two numbers for every parameter. Where n ranks hold the same model, each needs to hold them for one part in
n only: gradients are summed so that each rank gets its part (reduce-scatter), it updates these parameters, and then
all ranks get all parameters (all-gather). That is as much communication as the all-reduce that it replaces.

Source  Rajbhandari and others 2020, "ZeRO: memory optimizations toward training trillion parameter models", stage 1
"""

import pickle
from typing import NamedTuple

from minigrad_kernels.errors import KindError, ShapeError, StateError

from .. import device
from ..engine import write
from ..optim import Optimizer
from ..tensor import Tensor
from .arrays import flat_of
from .data_parallel import DataParallel
from .flat import Bucket

__all__ = ["ShardedOptimizer"]


class _Piece(NamedTuple):
    """What this rank owns of a parameter: elements start to stop of it, in the order of memory."""

    parameter: Tensor
    leaf: Tensor  # these elements, to be updated
    bucket: int
    start: int
    stop: int
    place: int  # of `start` in the bucket


class ShardedOptimizer(Optimizer):
    """An optimiser whose state is divided among the ranks of a DataParallel model.

    optimizer           of the model's parameters, with any options; its state, if any, is the same on all ranks
    model               the DataParallel model
    whole_gradients     give every rank all gradients, as clipping wants; otherwise .grad is None after backward, and
                        each backward outside of no_sync replaces what the one before has left for step

    It gives the same bits as the optimiser alone. Options and schedules are those of the optimiser. All ranks call
    state_dict together; it holds the state of all parameters, so a checkpoint does not depend on the number of ranks.
    Errors  RuntimeError for a model that has one already, ValueError for parameters that are not the model's
    """

    def __init__(self, optimizer, model, whole_gradients=False):
        if not isinstance(optimizer, Optimizer) or not isinstance(model, DataParallel):
            kinds = f"{type(optimizer).__name__} and {type(model).__name__}"
            raise KindError(f"ShardedOptimizer: got {kinds}, wanted an Optimizer and a DataParallel model")
        self.optimizer, self.model, self.world = optimizer, model, model.world
        self.defaults, self.param_groups = optimizer.defaults, optimizer.param_groups
        self.alone = self.world.size == 1
        self.scattered = not (whole_gradients or self.alone)
        if not self.alone:
            self._divide(model.reducer)

    @property
    def name(self):
        return self.optimizer.name

    @property
    def state(self):
        """That of the optimiser of this rank's part."""
        return self.optimizer.state if self.alone else self.own.state

    def _divide(self, reducer):
        """Lay the parameters into buckets like those of their gradients, and find this rank's pieces of them."""
        strangers = [p for group in self.param_groups for p in group["params"] if p not in reducer.place]
        if strangers:
            raise ShapeError(
                f"ShardedOptimizer: a parameter of shape {strangers[0].shape} is none of the model's, or had "
                "requires_grad off when the model was wrapped"
            )
        if reducer.scattered is not None:
            raise StateError("ShardedOptimizer: the model has one already; give one optimiser groups of parameters")
        reducer.scattered = self.scattered
        self.reducer, self.buckets, self.pieces = reducer, [], []
        chosen = {p: number for number, group in enumerate(self.param_groups) for p in group["params"]}
        groups: list[list[Tensor]] = [[] for _ in self.param_groups]
        for b, gradients in enumerate(reducer.buckets):
            bucket = Bucket(gradients.tensors, self.world.size)
            bucket.gather([parameter.data for parameter in bucket.tensors])
            bucket.scatter()
            self.buckets.append(bucket)
            for piece in self._pieces(b, bucket):
                if piece.parameter in chosen:
                    self.pieces.append(piece)
                    groups[chosen[piece.parameter]].append(piece.leaf)
        options = [{k: v for k, v in g.items() if k not in ("params", "param_names")} for g in self.param_groups]
        self.own = type(self.optimizer)([{**o, "params": leaves} for o, leaves in zip(options, groups, strict=True)])
        self.own.defaults = self.defaults
        self._keep_own_part()

    def _pieces(self, b, bucket):
        step = bucket.size // self.world.size
        low, high = self.world.rank * step, (self.world.rank + 1) * step
        for i, parameter in enumerate(bucket.tensors):
            begin, end = bucket.starts[i], bucket.starts[i + 1]
            start, stop = max(begin, low), min(end, high)
            if start < stop:
                yield _Piece(parameter, Tensor(bucket.array[start:stop]), b, start - begin, stop - begin, start)

    def add_param_group(self, param_group):
        raise StateError("ShardedOptimizer: parameters are divided already; add the group before wrapping")

    def zero_grad(self, set_to_none=True):
        """Forget the gradients, or fill them with zeros where they are."""
        super().zero_grad(set_to_none)
        if self.scattered:
            self.reducer.forget(set_to_none)

    # ---- steps ---------------------------------------------------------------------------------------------------

    def step(self, closure=None, *, scale=None, found_inf=None):
        """Update this rank's parameters by its part of the gradients, then take those of all ranks."""
        if self.alone:
            return self.optimizer.step(closure, scale=scale, found_inf=found_inf)
        loss = self.loss_of(closure)
        for own, group in zip(self.own.param_groups, self.param_groups, strict=True):
            own.update({name: value for name, value in group.items() if name not in ("params", "param_names")})
        for bucket in self.buckets:  # parameters that were given other arrays since
            bucket.gather([parameter.data for parameter in bucket.tensors])
            bucket.scatter()
        self._take_gradients()
        self.own.step(scale=scale, found_inf=found_inf)
        works = []
        for bucket in self.buckets:
            part = self.reducer.own_part(bucket.array)
            works.append(self.world.all_gather(bucket.array, part, label="parameters", asynchronous=True))
        for bucket, work in zip(self.buckets, works, strict=True):
            work.wait()
            for parameter in bucket.tensors:
                write(parameter)
        return loss

    def _take_gradients(self):
        for piece in self.pieces:
            piece.leaf.grad = self._gradient(piece)

    def _gradient(self, piece):
        if self.scattered and piece.parameter in self.reducer.unused:
            return None
        if self.scattered:
            array = self.reducer.buckets[piece.bucket].array
            return Tensor.made(array[piece.place : piece.place + piece.stop - piece.start])
        gradient = piece.parameter.grad
        if gradient is None:
            return None
        order = device.order_of(piece.parameter.data)
        flat = flat_of("step", "a gradient", device.contiguous(gradient.data, order), False)
        return Tensor.made(flat[piece.start : piece.stop])

    def updated(self):
        """As Optimizer.updated: where gradients are scattered, the pieces of this rank."""
        if not self.scattered:
            return super().updated()
        self._take_gradients()
        return self.own.updated()

    def agreed(self, found):
        """Whether any rank has raised the flag; all call this."""
        if self.scattered:
            self.world.all_reduce(found, "max", label="gradients that are not finite")
        return found

    def settle(self):
        """As Optimizer.settle, for this rank's part."""
        (self.optimizer if self.alone else self.own).settle()

    # ---- state ---------------------------------------------------------------------------------------------------

    def state_dict(self):
        """The state of all parameters, gathered from all ranks, as the optimiser alone would give it."""
        if self.alone:
            return self.optimizer.state_dict()
        self.settle()
        order = [parameter for group in self.param_groups for parameter in group["params"]]
        index = {parameter: i for i, parameter in enumerate(order)}
        mine = [
            (index[piece.parameter], piece.start, {n: device.host(v) if device.is_array(v) else v for n, v in state})
            for piece in self.pieces
            if (state := self.own.state.get(piece.leaf, {}).items())
        ]
        whole = {}
        for message in self.world.all_gather_bytes(pickle.dumps(mine)):
            for i, start, values in pickle.loads(message):
                entries = whole.setdefault(order[i], {})
                for name, value in values.items():
                    if not device.is_array(value):
                        entries[name] = value
                        continue
                    if name not in entries:
                        entries[name] = device.empty_like(order[i].data, value.dtype)
                    device.assign(flat_of("state_dict", name, entries[name])[start : start + value.size], value)
        self.optimizer.state = whole
        try:
            return self.optimizer.state_dict()
        finally:
            self.optimizer.state = {}

    def load_state_dict(self, state_dict):
        """Take over the state of all parameters; this rank keeps its part. Errors: as Optimizer.load_state_dict."""
        self.settle()
        self.optimizer.load_state_dict(state_dict)
        if self.alone:
            return
        self._keep_own_part()

    def _keep_own_part(self):
        """Take from the state of all parameters what belongs to this rank."""
        whole, self.optimizer.state = self.optimizer.state, {}
        self.own.state = {}
        for piece in self.pieces:
            if piece.parameter in whole:
                self.own.state[piece.leaf] = {
                    name: device.copy(flat_of("ShardedOptimizer", name, value, False)[piece.start : piece.stop])
                    if device.is_array(value)
                    else value
                    for name, value in whole[piece.parameter].items()
                }
