"""Optimizer: groups of parameters with options and state, and the steps that change them.

Options that change from step to step, such as the rate, are read from param_groups at every step; schedules
write them there. The state of a parameter is a dictionary of numbers and of arrays that lie in memory as the
parameter does. An option may be given as a Tensor with one element; its value of that moment is taken.
"""

import math
from collections import defaultdict
from typing import ClassVar

import numpy as np

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.modes import capturing
from minigrad_kernels.toolchain.watch import watched

from .. import device
from ..core.tape import zero_grad
from ..core.tensor import Tensor

NEW: dict = {}  # the state of a parameter that has none yet


class Optimizer:
    """Base of the update rules. A subclass defines `step` alone, in Tensors, as in PyTorch:

        class Descent(Optimizer):
            def __init__(self, params, lr):
                super().__init__(params, {"lr": lr})

            @no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p -= group["lr"] * p.grad

    Those here define `check`, `age`, `numbers` and `update` instead; rules.Rule has them for one launch of a kernel.

    params          Tensors, or dictionaries {"params": Tensors, option: value, ...} with options of their own
    defaults        the options of groups that do not state them
    param_groups    a list of dictionaries: the options of each group, and its Tensors under "params"
    state           {Tensor: {name: number, array or Tensor}}, an empty dictionary for each that has none yet
    kept            {name: True, or the option without which it is not there} of all that a state may hold, "step" and
                    arrays; empty where it may hold anything
    fixed           options that a captured step does not read anew: a graph is made again where they change
    Errors  ValueError for an option out of range, a parameter given twice or none at all; TypeError for what is no
            floating Tensor, and for a set, whose order changes from run to run; RuntimeError for the result of an
            operation. Nothing is changed then
    """

    kept: ClassVar[dict] = {}
    fixed: tuple[str, ...] = ()

    def __init__(self, params, defaults):
        self.state = defaultdict(dict)
        self._plans = {}  # of the kernels, by the launches of the last step
        self._unsure = {}  # {key: (parameters, plan)} of launches that the device may have skipped
        self.defaults = {name: plain(value) for name, value in defaults.items()}
        self.param_groups = []
        groups = self._list(params)
        if not groups:
            raise ShapeError(f"{self.name}: params is empty, wanted at least one parameter")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    name = property(lambda self: type(self).__name__)

    # ---- groups ------------------------------------------------------------------------------------------------

    def _list(self, params):
        if isinstance(params, Tensor | set | frozenset):
            raise KindError(f"{self.name}: params is a {type(params).__name__}, wanted a list of Tensors or of groups")
        return list(several("params", params, self.name))

    def add_param_group(self, param_group):
        """Add a group of parameters with options of its own, {"params": Tensors, option: value, ...}."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise KindError(f"{self.name}: a group is {param_group!r}, wanted a dictionary with 'params'")
        given = {name: plain(value) for name, value in param_group.items() if name != "params"}
        if unknown := sorted(given.keys() - self.defaults.keys() - {"lr", "initial_lr"}, key=str):
            raise ShapeError(f"{self.name}: a group has the options {unknown}, wanted some of {sorted(self.defaults)}")
        params = param_group["params"]
        group = {"params": [params] if isinstance(params, Tensor) else self._list(params), **self.defaults, **given}
        self.check(group)
        known = {*self._parameters()}
        for index, parameter in enumerate(group["params"]):
            self.check_parameter(f"{self.name}: params[{index}]", parameter)
            if parameter in known:
                raise ShapeError(f"{self.name}: params[{index}] (shape {parameter.shape}) is there twice")
            known.add(parameter)
        self.param_groups.append(group)

    def _parameters(self):
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def check(self, options):
        """Refuse options out of range; here all are taken."""

    def check_parameter(self, where, parameter):
        """Refuse what no rule can update."""
        if not isinstance(parameter, Tensor):
            raise KindError(f"{where} is a {type(parameter).__name__}, wanted a Tensor")
        if not parameter.is_leaf:
            raise StateError(f"{where} was made by {parameter.node.primitive.name}, wanted a leaf; use .detach()")
        if not device.is_floating(parameter.dtype):
            raise KindError(f"{where} has elements {parameter.dtype}, wanted floating ones")

    # ---- steps -------------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none=True):
        """Forget the gradients, or fill them with zeros where they are."""
        zero_grad(self._parameters(), set_to_none)

    @watched("update")
    def step(self, *, scale=None, found_inf=None):
        """Change every parameter that has a gradient by the rule.

        scale       one number in a Tensor or an array, by which the rule multiplies each gradient as it reads it;
                    `.grad` stays as it is. clip.clip_scale gives it
        found_inf   one number in a Tensor or an array: where it is not 0, nothing is changed and no step is counted.
                    Both are read on the device, the host waits for neither
        Errors  ValueError or TypeError for a gradient of another shape or type; nothing is changed then
        """
        calls = self._calls()
        if self._unsure and self._unsure.keys() != calls.keys():  # the ages of parameters may be others than they say
            self.settle()
            calls = self._calls()
        given = {name: value for name, value in (("scale", scale), ("found_inf", found_inf)) if value is not None}
        recorder, there = capturing.get(), {}
        for key, (group, place, age, batch, plan) in calls.items():
            numbers = there[place] = there.get(place) or {n: number_there(value, place) for n, value in given.items()}
            if place is device.CPU and found_inf is not None and numbers["found_inf"][0]:
                continue
            with place.active():
                self.update(group, age, batch, plan, **numbers)
            if found_inf is not None:
                self._unsure[key] = batch, plan
            if recorder is not None:
                repeat = Repeat(self, group, age, batch, plan, None if found_inf is None else key)
                recorder.note(repeat.again, repeat.undo, repeat.check)

    def _calls(self):
        """{key: (group, place, age, parameters, plan)} of the launches of a step."""
        calls, plans = {}, {}
        for index, group in enumerate(self.param_groups):
            for (place, _, age), batch in self._batches(group["params"]).items():
                key = index, *map(id, batch)
                plan = plans[key] = self._plans.get(key) or kernels.Plan(_laid_alike)
                calls[key] = group, place, age, batch, plan
        self._plans = plans
        return calls

    def _batches(self, parameters):
        """{(place, element type, age): parameters that have a gradient and are updated by one launch}."""
        batches, latest, batch, states, age = {}, None, [], self.state, self.age
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            data, dtype = parameter._data, parameter._data.dtype
            array = gradient._data if gradient.__class__ is Tensor else None
            if array is None or array.shape != data.shape or array.dtype is not dtype:
                _check_gradient(self.name, gradient, data)
            place = device.CPU if data.__class__ is np.ndarray else device.place_of(data)
            key = place, dtype, age(states.get(parameter, NEW))
            if key != latest:  # seldom
                latest, batch = key, batches.setdefault(key, [])
            batch.append(parameter)
        return batches

    def age(self, state):
        """What parameters that are updated by one launch must have in common, besides type and device."""
        return state.get("step", 0)

    def settle(self):
        """Take over how many steps devices have counted, fewer where a flag made them skip some. Until then the
        numbers in `state` may lag behind; state_dict asks first. Waits for the device."""
        for parameters, plan in self._unsure.values():
            count = None if plan.settings is None else plan.settings.counted()
            if count is not None:
                self.recount([self.state[parameter] for parameter in parameters], int(count))
        self._unsure.clear()

    def recount(self, states, count):
        """Correct the states of parameters by what their device has counted, the number of the next step."""
        for state in states if "step" in self.kept else ():
            state["step"] = count - 1

    # ---- state -------------------------------------------------------------------------------------------------

    def state_dict(self):
        """{"state": {index: {name: number or array}}, "param_groups": [{option: value, "params": indices}]}.

        Parameters are counted through all groups. Arrays are NumPy's, copies in logical (C) order.
        """
        self.settle()
        index = {parameter: i for i, parameter in enumerate(self._parameters())}
        groups = [{**group, "params": [index[p] for p in group["params"]]} for group in self.param_groups]
        states = {i: self.state[parameter] for parameter, i in index.items() if self.state.get(parameter)}
        saved = {i: {name: _copied(value, device.host) for name, value in states[i].items()} for i in states}
        return {"state": saved, "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Take over the options and the state that state_dict gave, for parameters in the same order.

        Errors  ValueError if groups, numbers of parameters or shapes differ; nothing is changed then
        """
        op = f"{self.name}.load_state_dict"
        groups = [{name: plain(value) for name, value in group.items()} for group in state_dict["param_groups"]]
        orders = [[int(index) for index in group.pop("params")] for group in groups]
        entries = {int(index): dict(values) for index, values in state_dict["state"].items()}
        sizes, wanted = list(map(len, orders)), [len(group["params"]) for group in self.param_groups]
        if sizes != wanted:
            raise ShapeError(f"{op}: groups of {sizes} parameters, wanted groups of {wanted}")
        parameters = dict(zip(sum(orders, []), self._parameters(), strict=True))
        for new, group in zip(groups, self.param_groups, strict=True):
            self.check({**group, **new})
        if unknown := entries.keys() - parameters.keys():
            raise ShapeError(f"{op}: state of parameter {min(unknown)}, which is in no group")
        state = {parameters[i]: self._loaded(f"{op}: state[{i}]", entries[i], parameters[i]) for i in entries}
        self.settle()
        self.state = defaultdict(dict, state)
        for new, group in zip(groups, self.param_groups, strict=True):
            own = {name: group[name] for name in ("params", *self.defaults)}
            group.clear()  # of what a schedule has added since, say
            group.update(own | new)

    def _loaded(self, where, values, parameter):
        """A state of a parameter from what state_dict gave: arrays in its type, layout and place."""
        if not self.kept:
            there = lambda array: Tensor(device.move(array, parameter.device))
            return {name: _copied(value, there) for name, value in values.items()}
        missing = [name for name, option in self.kept.items() if option is True and values and name not in values]
        if missing or values.keys() - self.kept.keys():
            raise ShapeError(f"{where} has {', '.join(map(repr, values))}, wanted {', '.join(map(repr, self.kept))}")
        return {
            name: int(value) if name == "step" else _loaded_alike(f"{where}[{name!r}]", value, parameter)
            for name, value in values.items()
            if value is not None
        }

    def __getstate__(self):
        self.settle()  # a copy has no plans to ask
        return self.__dict__

    def __repr__(self):  # by which ranks see that they have the same options
        groups = [{n: v for n, v in group.items() if n != "params"} for group in self.param_groups]
        return f"{self.name}({', '.join(map(str, groups))})"


class Repeat:
    """One launch of a step that a graph repeats. Options are read anew at each replay, as in a step, and sent to the
    device where they changed.

    age     that of the parameters before the captured step
    unsure  the key of the launch where a flag may skip the step: the device alone knows
    """

    def __init__(self, optimizer, group, age, parameters, plan, unsure=None):
        self.optimizer, self.group, self.parameters, self.plan = optimizer, group, parameters, plan
        self.age, self.unsure = age, unsure
        self.facts, self.arrays = self._look()  # which are held, lest others take their addresses

    def _states(self):
        return [self.optimizer.state.get(parameter, NEW) for parameter in self.parameters]

    def _look(self):
        """What the launch depends on: the options that decide which arrays there are, and the arrays."""
        arrays = [value for state in self._states() for name, value in state.items() if name != "step"]
        options = [bool(self.group.get(name)) for name in self.optimizer.kept.values()]
        options += [self.group[name] for name in self.optimizer.fixed]
        return [*options, *map(id, arrays)], arrays

    def check(self):
        """Whether the captured launch still is that of a step."""
        return self._look()[0] == self.facts and len({self.optimizer.age(state) for state in self._states()}) == 1

    def again(self):
        """One more step."""
        self.plan.repeat(self.optimizer.numbers(self.group, self.optimizer.age(self._states()[0])))
        self._count(1)
        if self.unsure is not None:
            self.optimizer._unsure[self.unsure] = self.parameters, self.plan

    def undo(self):
        """The step was not made."""
        self._count(-1)
        self.plan.retract(self.optimizer.numbers(self.group, self.age))

    def _count(self, steps):
        for state in self._states():
            if "step" in state:
                state["step"] += steps


# ---- values of options, gradients and state --------------------------------------------------------------------------


def several(name, value, op):
    """The value, which is to hold Tensors and is no model nor one of its methods."""
    if callable(value) or not hasattr(value, "__iter__"):
        raise KindError(f"{op}: {name} is a {type(value).__name__}, wanted Tensors; give model.parameters()")
    return value


def plain(value):
    """One number in a Tensor or in NumPy's wrapping as Python's; a list, which JSON makes of a tuple, as a tuple.

    Anything else is returned as it is, to be refused by whoever knows what is wanted.
    """
    if isinstance(value, list | tuple):
        return tuple(plain(entry) for entry in value)
    shape = getattr(value, "shape", None)
    return value.item() if isinstance(shape, tuple) and math.prod(shape) == 1 else value


def number_there(value, place):
    """A float64 array (1,) at a place from one number in an array or a Tensor."""
    array = value.array if isinstance(value, Tensor) else value
    return device.move(device.cast(array.reshape(1), "float64"), place.name)


def _check_gradient(op, gradient, array):
    """Refuse a gradient that is no Tensor of the shape and type of its parameter's array."""
    if not isinstance(gradient, Tensor):
        raise KindError(f"{op}: a gradient is a {type(gradient).__name__}, wanted a Tensor")
    if gradient.shape != array.shape:
        raise ShapeError(f"{op}: a gradient has shape {gradient.shape}, wanted its parameter's {array.shape}")
    if gradient.dtype != array.dtype:
        raise KindError(f"{op}: a gradient has elements {gradient.dtype}, its parameter {array.dtype}")


def _laid_alike(gradients, arrays):
    """Gradients, each in the layout of its parameter's array."""
    pairs = zip(gradients, arrays, strict=True)
    return [g if g.strides == p.strides else device.contiguous(g, device.order_of(p)) for g, p in pairs]


def _loaded_alike(where, value, parameter):
    """An array of the shape, type, layout and place of a parameter, from what state_dict gave."""
    array = device.host(value) if device.is_array(value) else np.asarray(value)
    if array.shape != parameter.shape:
        raise ShapeError(f"{where} has shape {array.shape}, wanted {parameter.shape}")
    own = device.empty(array.shape, parameter.dtype, device.order_of(parameter.array))
    own[...] = array
    return device.move(own, parameter.device)


def _copied(value, moved):
    """moved(a copy in logical (C) order) of an array, or of that of a Tensor; anything else itself."""
    array = value.array if isinstance(value, Tensor) else value
    return moved(device.copy(array)) if device.is_array(array) else value
