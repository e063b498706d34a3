"""Steps of an optimiser that a graph repeats: what the host does before each replay."""

__all__ = ["Repeat"]

SHAPING = ("momentum", "amsgrad", "centered")  # options that decide which arrays there are


class Repeat:
    """The update of parameters that one launch takes, after it was captured.

    Options are read anew at each replay, as in a step, and sent to the device where they changed.

    age     that of the parameters before the captured step
    unsure  called where a flag may skip the step: the device alone knows
    """

    def __init__(self, optimizer, group, age, parameters, plan, unsure=None):
        self.optimizer, self.group, self.parameters, self.plan = optimizer, group, parameters, plan
        self.age, self.unsure = age, unsure
        self.shaping, self.arrays = self._shaping(), self._arrays()

    def _shaping(self):
        return [bool(self.group.get(name)) for name in SHAPING]

    def _states(self):
        return [self.optimizer.state.get(parameter, {}) for parameter in self.parameters]

    def _arrays(self):
        return [value for state in self._states() for name, value in state.items() if name != "step"]

    def check(self):
        """Whether the captured launches still are those of a step."""
        arrays = self._arrays()
        return (
            self._shaping() == self.shaping
            and len(arrays) == len(self.arrays)
            and all(one is other for one, other in zip(arrays, self.arrays, strict=True))
            and len({self.optimizer.age(state) for state in self._states()}) == 1
        )

    def again(self):
        """One more step."""
        states = self._states()
        self.plan.repeat(self.optimizer.numbers(self.group, self.optimizer.age(states[0])))
        for state in states:
            if "step" in state:
                state["step"] += 1
        if self.unsure is not None:
            self.unsure()

    def undo(self):
        """The step was not made."""
        for state in self._states():
            if "step" in state:
                state["step"] -= 1
        self.plan.retract(self.optimizer.numbers(self.group, self.age))
