"""Pipeline: a model in stages, each on a rank of its own, through which the microbatches of a batch follow one another.

A stage receives what the stage before has computed, does its layers, and sends the result on; in backward gradients go
the other way. Both are ops of the tape (transfer.py), so a stage of a microbatch is a scalar at which backward()
begins: the loss in the last stage, the zero that `send` returns in the others. Sends do not wait, receives do, and
schedules.py says in which order a stage does what.

What stages send one another goes by way of the host, also between GPUs: NCCL's send waits for the other side's recv on
the same stream, and under 1F1B neighbours send to each other at once, so each would wait behind its own message.

Math    of m microbatches, g = sum_i (1 / m) g_i, added in their order as one model would do that is called with them
        one after another
Random  numbers that layer k draws for microbatch i of this step come from Generator.of_shard(i K + k) of the thread's
        generator, K being the layers of the whole model: they depend neither on the schedule nor on the number of
        stages. Each step raises the generator's step by one
Source  Huang and others 2019, "GPipe"; Narayanan and others 2021, "Efficient large-scale language model training on
        GPU clusters using Megatron-LM"
"""

import functools
import itertools
from collections import OrderedDict

from minigrad_kernels.errors import KindError, ShapeError, StateError

from .. import device as devices
from .. import ops
from ..core.check import integer_of, one_of
from ..core.modes import no_grad
from ..core.tensor import Tensor, tensor_of
from ..device import random
from ..nn import Module, Sequential
from .collectives import words
from .schedules import FORWARD, SCHEDULES
from .transfer import recv, send, world_of
from .transport import deadline_after

SPREAD = 0.01  # the part of the cost that is equal for all layers, so that those without parameters are spread too


class Pipeline(Module):
    """A Sequential cut into stages, one for each rank.

    model           a Sequential, the same on every rank; the layers of other stages are dropped here
    world           a Communicator; default that of parallel.init()
    microbatches    into how many equal parts a batch is cut
    schedule        "1f1b", or "gpipe", which keeps all microbatches of a batch at once
    balance         layers of each stage, such as [2, 3, 3]; default by the size of their parameters, see lengths_of

    pipe.to(device) moves the own stage.

    stage, stages   of this rank, and how many there are
    module          the own stage, a Sequential whose layers have the names that they have in the model
    peak            the most microbatches that were kept at once for backward; under 1f1b at most stages - stage

    An optimiser takes pipe.parameters(), those of the own stage.

    Errors  ValueError and TypeError for options that cannot be, before anything is sent; DisagreementError where ranks
            differ in options, names, shapes or types
    """

    def __init__(self, model, world=None, microbatches=1, schedule="1f1b", balance=None):
        if not isinstance(model, Sequential):
            raise KindError(f"Pipeline: model is a {type(model).__name__}, wanted a Sequential")
        self.world = world = world_of("Pipeline", world)
        self.microbatches = integer_of("Pipeline", "microbatches", microbatches, 1)
        self.schedule = one_of("Pipeline", "schedule", schedule, SCHEDULES)
        self.stage, self.stages = world.rank, world.size
        self._is_last = self.stage == self.stages - 1
        lengths = lengths_of(model, self.stages, balance)
        self.peak, self._layers, self._first = 0, len(model), sum(lengths[: self.stage])
        state = model.state_dict()
        self._names = list(state)
        options = {"microbatches": microbatches, "schedule": schedule, "layers of the stages": lengths}
        world.agree("Pipeline", {**options, **{name: words(tensor) for name, tensor in state.items()}})
        named = list(model._modules.items())[self._first : self._first + lengths[self.stage]]
        self.module = Sequential(dict(named))
        self.training = self.module.training = model.training

    @property
    def device(self):
        """Where this stage computes: where its parameters or buffers are, on the CPU if it has none."""
        first = next(itertools.chain(self.module.parameters(), self.module.buffers()), None)
        return "cpu" if first is None else first.device

    # ---- training ------------------------------------------------------------------------------------------------

    def train_step(self, inputs, targets, loss=ops.cross_entropy):
        """Add the gradients of a batch to .grad of the parameters; returns the mean loss, the same on every rank.

        inputs      a batch; only the first stage looks at it, others may give None
        targets     what belongs to them; only the last stage looks at it
        loss        called as loss(outputs, targets) for each microbatch, gives a scalar: the mean over it
        Errors      ValueError for a batch that the microbatches do not divide, where it is given, before anything is
                    sent
        """
        inputs = self._microbatches("inputs", inputs, self.stage == 0)
        targets = self._microbatches("targets", targets, self._is_last)
        losses = []
        try:
            self._run(inputs, targets, loss, losses)
        except BaseException as error:  # other stages are in the middle of this batch, and would take it for the next
            self.world.abort(f"{type(error).__name__}: {error}")
            raise
        random.generator().advance()
        mean = sum(value.item() for value in losses) / self.microbatches  # in the last stage
        return self.world.broadcast_object(mean, self.stages - 1)

    def _run(self, inputs, targets, loss, losses):
        """Forward and backward of all microbatches, in the order of the schedule."""
        kept = {}
        for what, number in SCHEDULES[self.schedule](self.stage, self.stages, self.microbatches):
            if what == FORWARD:
                kept[number] = self._forward(number, inputs[number], targets[number], loss, losses)
                self.peak = max(self.peak, len(kept))
            elif (end := kept.pop(number)).requires_grad:
                end.backward()
        self._settle()

    def _settle(self):
        """Wait until all that was sent has left: MPI goes on while one waits."""
        self.world.transport.settle(deadline_after(self.world.timeout))

    def _microbatches(self, name, batch, needed):
        """The equal parts of a batch on the device of this stage, None where it is not needed here."""
        if batch is None and not needed:
            return [None] * self.microbatches
        if not isinstance(batch, Tensor) or not batch.ndim:
            raise KindError(f"train_step: {name} is {type(batch).__name__}, wanted a Tensor of rows")
        if not len(batch) or len(batch) % self.microbatches:
            got = f"{name} has {len(batch)} rows"
            raise ShapeError(f"train_step: {got}, wanted a multiple of the {self.microbatches} microbatches")
        if not needed:
            return [None] * self.microbatches
        return ops.chunk(batch.to(self.device), self.microbatches)

    def _forward(self, number, x, target, loss, losses):
        """The scalar from which backward of a microbatch begins."""
        out = self._through(number, x)
        if not self._is_last:
            return out
        value = loss(out, target)
        if value.shape != ():
            raise ShapeError(f"train_step: loss gave shape {value.shape}, wanted a scalar")
        losses.append(value.detach())
        return value * (1 / self.microbatches)

    def _through(self, number, x):
        """What a microbatch becomes here in the last stage; in the others, once it is on its way, what send gives."""
        if self.stage:
            x = recv(self.stage - 1, world=self.world, device=self.device)
        for drawer, layer in enumerate(self.module, number * self._layers + self._first):
            with random.drawing_from(random.generator().of_shard(drawer)):
                x = layer(x)
        return x if self._is_last else send(x, self.stage + 1, world=self.world)

    # ---- inference -----------------------------------------------------------------------------------------------

    def forward(self, inputs=None):
        """The outputs for a batch of any size, on every rank, without a tape; only the first stage needs the inputs."""
        with no_grad():
            whole = tensor_of("Pipeline", "inputs", inputs) if self.stage == 0 else None
            parts = () if whole is None else ops.chunk(whole.to(self.device), self.microbatches)
            count = self.world.broadcast_object(len(parts))
            outputs = [self._through(*pair) for pair in itertools.zip_longest(range(count), parts)]
            self._settle()
            out = devices.host(ops.cat(outputs).array) if self._is_last else None
        return Tensor(self.world.broadcast_object(out, self.stages - 1)).to(self.device)

    # ---- state ---------------------------------------------------------------------------------------------------

    def state_dict(self, prefix=""):
        """The state of the whole model on every rank, in memory of its own on the CPU, under the model's names.

        So a checkpoint fits the model without stages, and any number of them. All ranks call it together.
        """
        own = {name: devices.host(tensor.array) for name, tensor in self.module.state_dict().items()}
        state = OrderedDict()
        for part in self.world.all_gather_object(own):
            state.update((prefix + name, Tensor(array)) for name, array in part.items())
        return state

    def load_state_dict(self, state_dict, strict=True):
        """Take this stage's part of the state of the whole model. Arguments, result and errors are Module's."""
        missing = [name for name in self._names if name not in state_dict]
        unexpected = [name for name in state_dict if name not in self._names]
        if strict and (missing or unexpected):
            faults = f"missing {', '.join(missing) or 'none'}; unexpected {', '.join(unexpected) or 'none'}"
            raise ShapeError(f"load_state_dict: the model does not fit: {faults}")
        own = {name: state_dict[name] for name in self.module.state_dict() if name in state_dict}
        found = self.module.load_state_dict(own, strict=False)
        return found._replace(missing_keys=missing, unexpected_keys=unexpected)


# ---- where a model is cut: contiguous runs of layers that cost about the same ----------------------------------------
#
# The cost of a layer is its share of the bytes of all parameters; of all ways to cut, the one whose costliest stage
# costs least is found by dynamic programming over (stages, layers).


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
    stage_of, owners = [stage for stage, length in enumerate(lengths) for _ in range(length)], {}
    for stage, layer in zip(stage_of, model, strict=True):
        for tensor in (*layer.parameters(), *layer.buffers()):
            if (first := owners.setdefault(tensor, stage)) != stage:  # it would be two Tensors from then on
                raise StateError(f"Pipeline: stages {first} and {stage} share a Tensor; make them one by balance=")
    return lengths
