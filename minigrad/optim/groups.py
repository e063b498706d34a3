"""Groups: parameters in groups that have options of their own, and the checks of both."""

import sys
from collections.abc import Iterable

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, StateError

from .. import device
from ..core.tensor import Tensor
from .values import plain

__all__ = ["Groups"]

FLAGS = {"amsgrad", "centered", "decoupled_weight_decay", "maximize", "nesterov"}


class Groups:
    """What an optimiser has of parameters and options; Optimizer says which. A subclass may define `check`."""

    def __init__(self, params, defaults):
        self.defaults = {name: plain(value) for name, value in defaults.items()}
        self.param_groups = []
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
        if not device.can_hold_a_sum(parameter.array):
            raise ShapeError(
                f"{self.name}: {place} (shape {parameter.shape}) is read-only or has gaps, wanted a dense array"
            )
        if parameter in known:
            raise ShapeError(f"{self.name}: {place} (shape {parameter.shape}) is there twice")

    # ---- options -----------------------------------------------------------------------------------------------

    def check(self, options):
        """Refuse options out of range; here all are taken."""

    def check_flags(self, options):
        """Refuse, for what is on or off, everything else: a text such as "no" would count as on."""
        for name in FLAGS & options.keys():
            if not isinstance(options[name], bool | np.bool):
                raise KindError(f"{self.name}: {name} is {options[name]!r}, wanted True or False")

    def check_number(self, options, name, least=0.0):
        """An option must be a number, `least` or more."""
        self.check_value(name, options[name], least)

    def check_value(self, name, value, least, below=float("inf")):
        """A value must be a number from `least` up to, but not including, `below`."""
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
