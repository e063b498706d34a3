"""How many steps devices have counted by themselves, where the host cannot know.

The launches of a step count it on their device, and one that its flag skips is not counted there; the host counts all,
and asks only where it needs the number.
"""

from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..core.tensor import Tensor

__all__ = ["Counts", "number_there"]


class Counts:
    """The calls of an optimiser whose steps a device may have counted otherwise than the host."""

    def __init__(self):
        self.latest = []  # the keys of the calls of the last step
        self.unsure = {}  # {key: (parameters, plan)} of those of which the host is not sure

    def step(self, calls, skippable):
        """Note the calls of a step, {key: (..., parameters, plan)}; skippable: it has a flag that may skip it."""
        self.latest = list(calls)
        if skippable:
            self.unsure.update({key: call[-2:] for key, call in calls.items()})

    def doubt(self, key, parameters, plan):
        """Note that a step that a graph repeats has a flag that may skip it."""
        self.unsure[key] = parameters, plan

    def settle(self, recount):
        """Have recount(parameter, count) correct the state of each parameter of which the host is not sure.

        count: of the next step, as in the last hyper-parameter of the rule
        """
        for parameters, plan in self.unsure.values():
            count = None if plan.settings is None else plan.settings.counted()
            if count is not None:
                for parameter in parameters:
                    recount(parameter, count)
        self.unsure = {}


def number_there(op, name, value, place):
    """A float64 array (1,) at a place from one number in an array or a Tensor."""
    array = value.array if isinstance(value, Tensor) else value
    if not device.is_array(array):
        raise KindError(f"{op}: {name} is {value!r}, wanted a Tensor or an array with one number")
    if array.size != 1:
        raise ShapeError(f"{op}: {name} has shape {tuple(array.shape)}, wanted one number")
    return device.move(device.cast(array.reshape(1), "float64"), place.name)
