"""Optimizer: what all update rules share, groups of parameters with options and state.

Options that change from step to step, such as the rate, are read from param_groups at every step; schedules
write them there. The state of a parameter is a dictionary of numbers and of arrays that lie in memory as the
parameter does. An option may be given as a Tensor with one element; its value of that moment is taken.
"""

import functools
from collections import defaultdict

import numpy as np

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError
from minigrad_kernels.toolchain.capture import capturing
from minigrad_kernels.toolchain.watch import watched

from .. import device
from ..core.interceptors import interceptors
from ..core.modes import enable_grad
from ..core.tape import write, zero_grad
from ..core.tensor import Tensor
from .counts import Counts, number_there
from .groups import Groups
from .repeat import Repeat
from .state import SPARE, State
from .values import check_gradient, laid_alike, lower_names, plain

__all__ = ["SPARE", "Optimizer"]

NUMBERS = frozenset({float, int, bool})
PLANS = 32  # kept: one for each group, and more where the parameters that have gradients change from step to step


class Optimizer(Groups, State):
    """Base of the update rules. A subclass defines `step` alone, in Tensors, as in PyTorch:

        class Descent(Optimizer):
            def __init__(self, params, lr):
                super().__init__(params, {"lr": lr})

            @no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p -= group["lr"] * p.grad

    Those here define `check`, `age`, `numbers` and `update` instead, which one launch of a kernel serves.

    params          Tensors, or pairs (name, Tensor) as named_parameters gives, or dictionaries
                    {"params": Tensors or pairs, option: value, ...} with options of their own
    defaults        the options of groups that do not state them
    param_groups    a list of dictionaries: the options of each group, its Tensors under "params", and the names of
                    pairs under "param_names"
    state           {Tensor: {name: number, array or Tensor}}, an empty dictionary for each that has none yet
    Errors  ValueError for an option out of range, a parameter given twice or none at all, names for some alone;
            TypeError for what is no floating Tensor, and for a set, whose order changes from run to run;
            RuntimeError for the result of an operation. Nothing is changed then
    """

    def __init__(self, params, defaults):
        self.state, self._plans, self._counts = defaultdict(dict), {}, Counts()
        super().__init__(params, defaults)

    # ---- steps -------------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none=True):
        """Forget the gradients, or fill them with zeros where they are."""
        for group in self.param_groups:
            zero_grad(group["params"], set_to_none)

    @watched("update")
    def step(self, closure=None, *, scale=None, found_inf=None):
        """Change every parameter that has a gradient by the rule.

        closure     called before, with gradients on: it computes the loss and the gradients anew, returns the loss
        scale       one number in a Tensor or an array, by which the rule multiplies each gradient as it reads it;
                    `.grad` stays as it is. clip.clip_scale gives it
        found_inf   one number in a Tensor or an array: where it is not 0, nothing is changed and no step is counted.
                    Both are read on the device, the host waits for neither
        Returns what the closure returned, None without one.
        Errors  ValueError or TypeError for a gradient of another shape or type; nothing is changed then
        """
        loss = None if closure is None else self.loss_of(closure)
        calls = self._calls()
        if self._counts.unsure and self._counts.latest != list(calls):
            self.settle()
            calls = self._calls()
        self._counts.step(calls, found_inf is not None)
        recorder, numbers, there = capturing.get(), {}, {}
        for key, (group, place, age, batch, plan) in calls.items():
            if scale is not None or found_inf is not None:
                numbers = there[place] = there.get(place) or self._numbers_there(place, scale, found_inf)
            if place is not device.CPU:
                with place.active():
                    self.update(group, age, batch, plan, **numbers)
            elif found_inf is None or not numbers["found_inf"][0]:
                self.update(group, age, batch, plan, **numbers)
            else:
                continue
            if recorder is not None:
                unsure = None if found_inf is None else functools.partial(self._counts.doubt, key, batch, plan)
                repeat = Repeat(self, group, age, batch, plan, unsure)
                recorder.note(repeat.again, repeat.undo, repeat.check)
        return loss

    def _numbers_there(self, place, scale, found_inf):
        """{name: a float64 array (1,) at the place} of those that are not None."""
        given = {"scale": scale, "found_inf": found_inf}
        return {name: number_there(self.name, name, value, place) for name, value in given.items() if value is not None}

    def _calls(self):
        """{key: (group, place, age, parameters, plan)} of the launches of a step."""
        calls, work, new = {}, [], []
        for group in self.param_groups:
            work.append((group, self._batches(group["params"], new)))
        for parameter in new:
            self.state[parameter] = {}
        for index, (group, batches) in enumerate(work):
            for (place, _, age), batch in batches.items():
                key = index, *map(id, batch)
                calls[key] = group, place, age, batch, self._plan(key)
        return calls

    def settle(self):
        """Take over how many steps devices have counted: fewer where some were skipped. Until
        then the numbers in `state` may lag behind; state_dict asks first. Waits for the device."""
        self._counts.settle(self.recount)

    def recount(self, parameter, count):
        """Correct the state of a parameter by what its device has counted, the number of the next step."""
        self.state[parameter]["step"] = int(count) - 1

    def _batches(self, parameters, new):
        """{(place, element type, age): parameters that have a gradient and are updated by one launch}.

        new     gets those that have no state yet
        """
        batches, latest, batch, states, age = {}, None, [], self.state, self.age
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            data = parameter._data
            dtype = data.dtype
            if (
                gradient.__class__ is not Tensor
                or gradient._data.shape != data.shape
                or gradient._data.dtype is not dtype
            ):
                check_gradient(self.name, gradient, data)
            state = states.get(parameter)
            if state is None:
                new.append(parameter)
                state = {}
            key = device.CPU if data.__class__ is np.ndarray else device.place_of(data), dtype, age(state)
            if key != latest:  # seldom
                latest, batch = key, batches.setdefault(key, [])
            batch.append(parameter)
        return batches

    def loss_of(self, closure):
        """What the closure of a step returns, called with gradients on; None without one."""
        if closure is None:
            return None
        if not callable(closure):
            raise KindError(f"{self.name}: closure is {closure!r}, wanted a function without arguments or None")
        with enable_grad():
            return closure()

    def _plan(self, key):
        """What the kernel keeps from step to step for the parameters of this key."""
        # The last one used stands last.
        plan = self._plans[key] = self._plans.pop(key, None) or kernels.Plan(laid_alike)
        if len(self._plans) > PLANS:
            del self._plans[next(iter(self._plans))]
        return plan

    def age(self, state):
        """What parameters that are updated by one launch must have in common, besides type and device."""
        raise NotImplementedError

    def numbers(self, group, age):
        """What an update of parameters of that age reads besides their arrays, as `hyper` gives it."""
        raise NotImplementedError

    def update(self, group, age, parameters, plan, **numbers):
        """Update parameters of one type, device and age by one launch; `plan` and `numbers`, scale and found_inf, are
        the kernel's."""
        raise NotImplementedError

    def hyper(self, names, group, **others):
        """The numbers for a kernel, by their names in minigrad_kernels.optimizer: options of a group, and others."""
        numbers = [others[name] if name in others else group[name] for name in lower_names(names)]
        if not NUMBERS.issuperset(map(type, numbers)):
            numbers = [plain(value) for value in numbers]
            for name, value in zip(lower_names(names), numbers, strict=True):
                if not isinstance(value, int | float):
                    raise KindError(f"{self.name}: {'lr' if name == 'rate' else name} is {value!r}, wanted a number")
        return np.fromiter(numbers, np.float64, len(numbers))  # in half the time of np.array

    @staticmethod
    def written(parameters):
        """The arrays of the parameters, to be changed, and those of their gradients.

        Gradients may lie in another layout than their parameters: the plan of an update gives them the same.
        """
        arrays, gradients = [], []
        told = interceptors()
        for parameter in parameters:
            if told or parameter.node is not None:
                write(parameter)
            else:  # the same where nobody has to be told
                parameter.version[0] += 1
            arrays.append(parameter._data)
            gradients.append(parameter.grad._data)
        return arrays, gradients

    def arrays(self, name, parameters, start=0):
        """The arrays of this name in the state of the parameters, full of `start` where there were none."""
        states = self.state
        try:
            return [states[parameter][name] for parameter in parameters]  # as nearly always
        except KeyError:
            for parameter in parameters:
                if name not in states[parameter]:
                    like = parameter.array
                    states[parameter][name] = device.full(like.shape, start, like.dtype, device.order_of(like), like)
        return [states[parameter][name] for parameter in parameters]

    def __getstate__(self):
        self.settle()  # a copy has no plans to ask
        return self.__dict__

    def __repr__(self):
        lines = []
        for index, group in enumerate(self.param_groups):
            lines += [f"Parameter Group {index}"]
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return f"{self.name} (\n" + "\n".join(lines) + "\n)"
