"""ShardedOptimizer: each rank keeps the state of, and updates, its own part of the parameters.

Adam holds two numbers for every parameter. Where n ranks hold the same model, the parameters are dealt out to them: a
rank updates its own by their averaged gradients, and then sends them to all others (broadcast). A parameter is not
divided, so the parts are as equal as their sizes allow.

Source  Rajbhandari and others 2020, "ZeRO: memory optimizations toward training trillion parameter models", stage 1
"""

import contextlib
from collections import defaultdict

from minigrad_kernels.errors import KindError, StateError

from ..core.tape import write
from ..optim import Optimizer
from .buckets import buckets_of
from .data_parallel import DataParallel


def dealt_out(parameters, ranks):
    """{parameter: the rank that updates it}: the largest come first, each to the rank that has least so far."""
    held, owners = [0] * ranks, {}
    for parameter in sorted(parameters, key=lambda parameter: -parameter.array.nbytes):
        owners[parameter] = rank = held.index(min(held))
        held[rank] += parameter.array.nbytes
    return owners


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
        self._owners = dealt_out(self._parameters(), self.world.size)
        self._buckets = [(rank, bucket) for rank in range(self.world.size) for bucket in buckets_of(self._part(rank))]
        self._gather()
        self._keep_own_part()

    name = property(lambda self: self.optimizer.name)
    state = property(lambda self: self.optimizer.state, doc="That of the parameters of this rank.")

    def _part(self, rank):
        return [parameter for parameter, owner in self._owners.items() if owner == rank]

    def _gather(self):
        """Have the parameters look at their places in the buckets, also those that were given other arrays since."""
        for _, bucket in self._buckets:
            bucket.gather([parameter.array for parameter in bucket.tensors])
            bucket.scatter()

    def add_param_group(self, param_group):
        raise StateError("ShardedOptimizer: parameters are dealt out already; add the group before wrapping")

    @contextlib.contextmanager
    def _alone(self):
        """Within, the groups of the optimiser have the parameters of this rank alone."""
        whole = [group["params"] for group in self.param_groups]
        for group in self.param_groups:
            group["params"] = [p for p in group["params"] if self._owners[p] == self.world.rank]
        try:
            yield
        finally:
            for group, parameters in zip(self.param_groups, whole, strict=True):
                group["params"] = parameters

    def step(self, *, scale=None, found_inf=None):
        """Update this rank's parameters, then take those of all ranks."""
        with self._alone():
            self.optimizer.step(scale=scale, found_inf=found_inf)
        self._gather()
        works = [
            self.world.broadcast(bucket.array, rank, label="parameters", asynchronous=True)
            for rank, bucket in self._buckets
        ]
        for work, (_, bucket) in zip(works, self._buckets, strict=True):
            work.wait()
            for parameter in bucket.tensors:
                write(parameter)

    def settle(self):
        """As Optimizer.settle, for this rank's part."""
        self.optimizer.settle()

    # ---- state ---------------------------------------------------------------------------------------------------

    def state_dict(self):
        """The state of all parameters, gathered from all ranks, as the optimiser alone would give it."""
        found, states = self.optimizer.state_dict(), {}
        for part in self.world.all_gather_object(found["state"]):
            states |= part
        return {**found, "state": dict(sorted(states.items()))}

    def load_state_dict(self, state_dict):
        """Take over the state of all parameters; this rank keeps its part. Errors: as Optimizer.load_state_dict."""
        self.optimizer.load_state_dict(state_dict)
        self._keep_own_part()

    def _keep_own_part(self):
        """Forget the state of the parameters of other ranks."""
        own = {p: state for p, state in self.state.items() if self._owners[p] == self.world.rank}
        self.optimizer.state = defaultdict(dict, own)
