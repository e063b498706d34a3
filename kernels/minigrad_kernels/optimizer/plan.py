"""What one place that calls an update, step after step, keeps in between."""

import weakref
from collections import OrderedDict
from operator import is_

__all__ = ["Plan"]

KEPT = 4  # tables: gradients that are made anew at each step lie in turn at a few places


class Plan:
    """The arrays that the last call has checked, tables of where they lie, and what a device holds of the settings.

    A call whose arrays are the same ones as the last time looks at none of them again. Results do not depend on it:
    a call without a plan begins with an empty one. It belongs to one function and one call site; it keeps no array
    alive. Nothing that a device holds of it is ever written anew but by the kernels and for new hyper-parameters, so
    a captured launch may be repeated as long as somebody keeps the plan's `tables` and `settings`.
    """

    __slots__ = ("_arrays", "_kept", "_rows", "elements", "settings", "sizes", "tables")

    def __init__(self):
        self._arrays: dict[str, list | None] = {}  # weak references, by the name of the list; None: it is not there
        self._rows: dict[str, tuple] = {}  # addresses, none of a list that is not there
        self._kept: OrderedDict[tuple, tuple] = OrderedDict()  # tables by the addresses in them
        self.sizes: list[int] = []
        self.elements = 0  # of all parameters
        self.tables = self.settings = None  # of the device's own kind

    def __reduce__(self):
        return Plan, ()  # a copy knows nothing yet

    def repeat(self, hyper):
        """The host's share of one more update by launches that were captured: numbers that have changed."""
        if self.settings is not None:  # there are elements
            self.settings.repeat(hyper)

    def retract(self, hyper):
        """Take back an update with these numbers that was captured but will not be launched."""
        if self.settings is not None:
            self.settings.retract(hyper)

    def on_copies(self, arrays):
        """A plan for a call on copies of these arrays, the first list, that are made anew for each call.

        It begins with the settings, the only thing that stays, as long as the arrays are the same ones.
        """
        lists = {"copied": arrays}
        if self.changed(lists):
            self.__init__()
            self._note(lists)
        plan = Plan()
        plan.settings = self.settings
        return plan

    def _note(self, lists):
        for name, arrays in lists.items():
            self._arrays[name] = None if arrays is None else [weakref.ref(array) for array in arrays]

    def _same(self, name, arrays):
        known = self._arrays[name]
        if known is None or arrays is None:
            return known is arrays
        return len(known) == len(arrays) and all(map(is_, [reference() for reference in known], arrays))

    def changed(self, lists):
        """The names of the lists that hold other arrays than the last time: all of them where the first one does."""
        if self._arrays.keys() != lists.keys():
            return list(lists)
        names = [name for name, arrays in lists.items() if not self._same(name, arrays)]
        return list(lists) if names and names[0] == next(iter(lists)) else names

    def remember(self, changed, lists, address, tables):
        """Note lists that have been checked, and take tables for them, made where none are kept.

        address: of an array; tables: makes them from rows of addresses and from sizes
        """
        first = next(iter(lists))
        if first in changed:
            if self._arrays:
                self.__init__()
            self.sizes = [array.size for array in lists[first]]
            self.elements = sum(self.sizes)
        known = self._rows
        rows = {n: tuple(map(address, lists[n] or ())) if n in changed else known[n] for n in lists}
        key = tuple(rows.values())
        found = self._kept.pop(key, None) or tables(key, self.sizes)
        self._kept[key] = self.tables = found  # the last one used stands last
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        self._rows = rows
        self._note({name: lists[name] for name in changed})
