"""State of an optimiser as a checkpoint takes and gives it: checked as a whole before any of it is taken over."""

from collections import defaultdict
from typing import ClassVar

from minigrad_kernels.errors import MinigradError, ShapeError

from .values import loaded, loaded_own, plain, saved

__all__ = ["SPARE", "State"]

SPARE = "spare_buffer"  # in a state: an array without values yet, kept for its place


class State:
    """What an optimiser has of saved options and state; Optimizer says which."""

    kept: ClassVar[dict] = {}  # {name: whether it must be there} of all that a state may hold; empty for anything

    def state_dict(self):
        """{"state": {index: {name: number or array}}, "param_groups": [{option: value, "params": indices}]}.

        Parameters are counted through all groups. Arrays are NumPy's, copies in logical (C) order.
        """
        self.settle()
        index, groups = {}, []
        for group in self.param_groups:
            for parameter in group["params"]:
                index[parameter] = len(index)
            options = {name: value for name, value in group.items() if name != "params"}
            groups.append({**options, "params": [index[parameter] for parameter in group["params"]]})
        state = {
            index[parameter]: {name: saved(value) for name, value in values.items() if name != SPARE}
            for parameter, values in self.state.items()
            if values.keys() - {SPARE}
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
        self.settle()
        wanted = [len(group["params"]) for group in self.param_groups]
        if sizes != wanted:
            raise ShapeError(f"{self.name}.load_state_dict: groups of {sizes} parameters, wanted groups of {wanted}")
        parameters = dict(zip(order, (p for group in self.param_groups for p in group["params"]), strict=True))
        if len(parameters) != len(order):
            raise ShapeError(f"{self.name}.load_state_dict: params of groups are {order}, wanted each number once")
        options = [{name: plain(value) for name, value in group.items() if name != "params"} for group in groups]
        faults = [
            fault for pair in zip(options, self.param_groups, strict=True) for fault in self._option_faults(*pair)
        ]
        state = self.loaded(entries, parameters, faults)
        for new, group in zip(options, self.param_groups, strict=True):
            for name in group.keys() - new.keys() - self.defaults.keys() - {"params"}:
                del group[name]  # what a schedule has added since, say
            group.update(new)
        self.state = defaultdict(dict, state)

    def _option_faults(self, new, group):
        """What is wrong with options that are to take the place of those of a group, in words."""
        both = {**group, **new}
        try:
            self.check_flags(both)
            for name in sorted(
                {"lr", "initial_lr", "max_lr", "min_lr"} & both.keys()
            ):  # the last three are of schedules
                self.check_value(name, both[name], float("-inf"))
            if "lr" in both:
                both["lr"] = max(both["lr"], 0)  # rounding leads a schedule that ends at 0 just below it
            self.check(both)
        except MinigradError as error:
            return [str(error)]
        return []

    def _name_faults(self, values):
        """What is wrong with the names in the state of a parameter, in words."""
        unknown = [name for name in values if name not in self.kept] if self.kept else []
        missing = [name for name, needed in self.kept.items() if needed and values and name not in values]
        wrong = [f"lacks {', '.join(missing)}"] * bool(missing)
        return " and ".join(wrong + [f"has unknown {', '.join(map(repr, unknown))}"] * bool(unknown))

    def loaded(self, state, parameters, faults=()):
        """{parameter: its state} from {index: {name: number or array}} and {index: parameter}.

        faults  found before, in words: one error names them and all that is wrong here
        """
        place, faults, found = f"{self.name}.load_state_dict: state", list(faults), {}
        for index, values in state.items():
            if index not in parameters:
                faults.append(f"{place} of parameter {index}, which is in no group")
            elif not isinstance(values, dict):
                faults.append(f"{place}[{index}] is {values!r:.60}, wanted a dictionary")
            elif wrong := self._name_faults(values):
                faults.append(f"{place}[{index}] {wrong}")
            else:
                own = found[parameters[index]] = {}
                for name, value in values.items():
                    if not self.kept:
                        own[name] = loaded_own(value, parameters[index])
                        continue
                    try:
                        if value is not None:
                            own[name] = loaded(f"{place}[{index}][{name!r}]", name, value, parameters[index])
                    except ShapeError as error:
                        faults.append(str(error))
        if faults:
            raise ShapeError("; ".join(faults))
        return found
