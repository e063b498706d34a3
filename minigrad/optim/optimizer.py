"""Optimizer: what all update rules share, groups of parameters with options and state.

Options that change from step to step, such as the rate, are read from param_groups at every step; schedules
write them there. The state of a parameter is a dictionary of numbers and of arrays that lie in memory as the
parameter does. An option may be given as a Tensor with one element; its value of that moment is taken.
"""

import sys
from collections.abc import Iterable

import numpy as np

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.companion import TRAINING, expect

from .. import device
from ..engine import write
from ..modes import enable_grad
from ..tensor import Tensor
from .values import check_gradients, loaded, lower_names, plain, saved

__all__ = ["Optimizer"]

PLANS = 32  # kept: one for each group, and more where the parameters that have gradients change from step to step
FLAGS = {"amsgrad", "centered", "decoupled_weight_decay", "maximize", "nesterov"}


class Optimizer:
    """Base of the update rules: a subclass checks its options and defines `update`.

    params          Tensors, or pairs (name, Tensor) as named_parameters gives, or dictionaries
                    {"params": Tensors or pairs, option: value, ...} with options of their own
    defaults        the options of groups that do not state them
    param_groups    a list of dictionaries: the options of each group, its Tensors under "params", and the names of
                    pairs under "param_names"
    state           {Tensor: {name: number or array}}
    Errors  ValueError for an option out of range, a parameter given twice or none at all, names for some alone;
            TypeError for what is no floating Tensor, and for a set, whose order changes from run to run;
            RuntimeError for the result of an operation. Nothing is changed then
    """

    def __init__(self, params, defaults):
        expect(TRAINING, self.name)
        self.defaults = {name: plain(value) for name, value in defaults.items()}
        self.state, self.param_groups, self._plans = {}, [], {}
        groups = self._list(params)
        if not groups:
            raise ShapeError(f"{self.name}: params is empty, wanted at least one parameter")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    @property
    def name(self):
        return type(self).__name__

    def _list(self, params):
        if isinstance(params, Tensor):
            raise KindError(f"{self.name}: params is a single Tensor, wanted an iterable, such as [tensor]")
        if not isinstance(params, Iterable) or isinstance(params, set | frozenset):
            kind = type(params).__name__
            raise KindError(
                f"{self.name}: params is a {kind}, wanted Tensors or dictionaries in an order, as in a list"
            )
        return list(params)

    def _without_names(self, params):
        """(Tensors, the names of (name, Tensor) pairs or None)."""
        pairs = [isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) for entry in params]
        if not any(pairs):
            return params, None
        if not all(pairs):
            raise ShapeError(f"{self.name}: params[{pairs.index(False)}] has no name, wanted names for all or for none")
        return [parameter for _, parameter in params], [name for name, _ in params]

    def add_param_group(self, param_group):
        """Add a group of parameters with options of its own, {"params": Tensors or pairs, option: value, ...}."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise KindError(f"{self.name}: a group is {param_group!r}, wanted a dictionary with 'params'")
        params = param_group["params"]
        params, names = self._without_names([params] if isinstance(params, Tensor) else self._list(params))
        if any((names is None) != ("param_names" not in group) for group in self.param_groups):
            raise ShapeError(
                f"{self.name}: params has {'no ' * (names is None)}names, wanted names in all groups or none"
            )
        unknown = sorted(param_group.keys() - self.defaults.keys() - {"params", "lr", "initial_lr"}, key=str)
        if unknown:
            raise ShapeError(f"{self.name}: a group has the options {unknown}, wanted some of {sorted(self.defaults)}")
        options = {
            **self.defaults,
            **{name: plain(value) for name, value in param_group.items() if name != "params"},
        }
        self.check_flags(options)
        self.check(options)
        known = {parameter for group in self.param_groups for parameter in group["params"]}
        for index, parameter in enumerate(params):
            self._check_parameter(f"params[{index}]", parameter, known)
            known.add(parameter)
        named = {} if names is None else {"param_names": tuple(names)}
        self.param_groups.append({"params": params, **named, **options})

    def _check_parameter(self, place, parameter, known):
        if not isinstance(parameter, Tensor):
            raise KindError(f"{self.name}: {place} is a {type(parameter).__name__}, wanted a Tensor")
        if parameter.node is not None:
            made = parameter.node.primitive.name
            raise StateError(f"{self.name}: {place} was made by {made}, wanted a leaf; use .detach() for its value")
        if not device.is_floating(parameter.dtype):
            raise KindError(f"{self.name}: {place} has elements {parameter.dtype}, wanted floating ones")
        if not device.can_hold_a_sum(parameter.data):
            raise ShapeError(
                f"{self.name}: {place} (shape {parameter.shape}) is read-only or has gaps, wanted a dense array"
            )
        if parameter in known:
            raise ShapeError(f"{self.name}: {place} (shape {parameter.shape}) is there twice")

    # ---- options -----------------------------------------------------------------------------------------------

    def check(self, options):
        """Refuse options out of range."""
        raise NotImplementedError

    def check_flags(self, options):
        """Refuse, for what is on or off, everything else: a text such as "no" would count as on."""
        for name in FLAGS & options.keys():
            if not isinstance(options[name], bool | np.bool):
                raise KindError(f"{self.name}: {name} is {options[name]!r}, wanted True or False")

    def check_number(self, options, name, least=0.0, below=float("inf")):
        """An option must be a number from `least` up to, but not including, `below`."""
        self.check_value(name, options[name], least, below)

    def check_value(self, name, value, least=0.0, below=float("inf")):
        if isinstance(value, Tensor):
            got = f"a Tensor of shape {value.shape} with elements {value.dtype}"
            raise ShapeError(f"{self.name}: {name} is {got}, wanted one number")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise KindError(f"{self.name}: {name} is {value!r}, wanted a number")
        if not abs(value) <= sys.float_info.max:
            raise ShapeError(f"{self.name}: {name} is {value}, wanted a finite number")
        if not least <= value < below:
            wanted = f"at least {least:g}" + ("" if below == float("inf") else f" and below {below:g}")
            raise ShapeError(f"{self.name}: {name} is {value}, wanted {wanted}")

    # ---- steps -------------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none=True):
        """Forget the gradients, or fill them with zeros where they are."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad = parameter.grad.detach()
                    device.fill(write(parameter.grad), 0)

    def step(self, closure=None):
        """Change every parameter that has a gradient by the rule.

        closure     called before, with gradients on: it computes the loss and the gradients anew, returns the loss
        Returns what the closure returned, None without one.
        Errors  ValueError or TypeError for a gradient of another shape or type; nothing is changed then
        """
        loss = self.loss_of(closure)
        work = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        for parameters in work:
            check_gradients(self.name, parameters)
        for index, (group, parameters) in enumerate(zip(self.param_groups, work, strict=True)):
            for (place, _, age), batch in self._batches(parameters).items():
                with place.active():
                    self.update(group, age, batch, self._plan(index, batch))
        return loss

    def _batches(self, parameters):
        """{(place, element type, age): parameters that are updated by one launch}."""
        batches = {}
        for parameter in parameters:
            age, data = self.age(self.state.setdefault(parameter, {})), parameter.data
            batches.setdefault((device.place_of(data), data.dtype, age), []).append(parameter)
        return batches

    def loss_of(self, closure):
        """What the closure of a step returns, called with gradients on; None without one."""
        if closure is None:
            return None
        if not callable(closure):
            raise KindError(f"{self.name}: closure is {closure!r}, wanted a function without arguments or None")
        with enable_grad():
            return closure()

    def _plan(self, index, parameters):
        """What the kernel keeps from step to step for these parameters of a group."""
        key = index, *map(id, parameters)
        plan = self._plans[key] = self._plans.pop(key, None) or kernels.Plan()  # the last one used stands last
        if len(self._plans) > PLANS:
            del self._plans[next(iter(self._plans))]
        return plan

    def age(self, state):
        """What parameters that are updated by one launch must have in common, besides type and device."""
        raise NotImplementedError

    def update(self, group, age, parameters, plan):
        """Update parameters of one type, device and age by one launch; `plan` is the kernel's."""
        raise NotImplementedError

    @staticmethod
    def hyper(names, group, **others):
        """The numbers for a kernel, by their names in minigrad_kernels.optimizer: options of a group, and others."""
        return np.array([others[name] if name in others else group[name] for name in lower_names(names)], np.float64)

    @staticmethod
    def written(parameters):
        """The arrays of the parameters, to be changed."""
        return [write(parameter) for parameter in parameters]

    @staticmethod
    def gradients(parameters):
        """The gradients, each in the layout of its parameter."""
        pairs = [(parameter.grad.data, parameter.data) for parameter in parameters]
        return [g if g.strides == p.strides else device.contiguous(g, device.order_of(p)) for g, p in pairs]

    def arrays(self, name, parameters, start=0):
        """The arrays of this name in the state of the parameters, full of `start` where there were none."""
        for parameter in parameters:
            state = self.state[parameter]
            if name not in state:
                like = parameter.data
                state[name] = device.full(like.shape, start, like.dtype, device.order_of(like), like)
        return [self.state[parameter][name] for parameter in parameters]

    # ---- state -------------------------------------------------------------------------------------------------

    def state_dict(self):
        """{"state": {index: {name: number or array}}, "param_groups": [{option: value, "params": indices}]}.

        Parameters are counted through all groups. Arrays are NumPy's, copies in logical (C) order.
        """
        index, groups = {}, []
        for group in self.param_groups:
            for parameter in group["params"]:
                index[parameter] = len(index)
            options = {name: value for name, value in group.items() if name != "params"}
            groups.append({**options, "params": [index[parameter] for parameter in group["params"]]})
        state = {
            index[parameter]: {name: saved(value) for name, value in values.items()}
            for parameter, values in self.state.items()
            if values
        }
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Take over the options and the state that state_dict gave, for parameters in the same order.

        Errors  ValueError if groups, numbers of parameters or shapes differ; nothing is changed then
        """
        try:
            groups = [dict(group) for group in state_dict["param_groups"]]
            sizes = [len(group["params"]) for group in groups]
            order = [int(index) for group in groups for index in group["params"]]
            entries = {int(index): dict(values) for index, values in state_dict["state"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ShapeError(f"{self.name}.load_state_dict: wanted what state_dict gives, got {error!r}") from error
        wanted = [len(group["params"]) for group in self.param_groups]
        if sizes != wanted:
            raise ShapeError(f"{self.name}.load_state_dict: groups of {sizes} parameters, wanted groups of {wanted}")
        parameters = dict(zip(order, (p for group in self.param_groups for p in group["params"]), strict=True))
        state = self.loaded(entries, parameters)
        options = [{name: plain(value) for name, value in group.items() if name != "params"} for group in groups]
        for new, group in zip(options, self.param_groups, strict=True):
            both = {**group, **new}
            self.check_flags(both)
            self.check_value("lr", both["lr"], float("-inf"))
            self.check({**both, "lr": max(both["lr"], 0)})  # rounding leads a schedule that ends at 0 just below it
        for new, group in zip(options, self.param_groups, strict=True):
            group.update(new)
        self.state = state

    def loaded(self, state, parameters):
        """{parameter: its state} from {index: {name: number or array}} and {index: parameter}."""
        for index, values in state.items():
            if index not in parameters:
                raise ShapeError(f"{self.name}.load_state_dict: state of parameter {index}, which is in no group")
            if not isinstance(values, dict):
                raise ShapeError(f"{self.name}.load_state_dict: state[{index}] is {values!r}, wanted a dictionary")
        return {
            parameters[index]: {
                name: loaded(f"{self.name}.load_state_dict: state[{index}][{name!r}]", name, value, parameters[index])
                for name, value in values.items()
                if value is not None
            }
            for index, values in state.items()
        }

    def __repr__(self):
        lines = []
        for index, group in enumerate(self.param_groups):
            lines += [f"Parameter Group {index}"]
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return f"{self.name} (\n" + "\n".join(lines) + "\n)"
