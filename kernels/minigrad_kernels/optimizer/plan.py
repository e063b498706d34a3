"""What one place that calls an update, step after step, keeps in between."""

import weakref
from collections import OrderedDict
from operator import attrgetter, is_

__all__ = ["Plan"]

KEPT = 4  # tables: gradients that are made anew at each step lie in turn at a few places
_layout = attrgetter("__class__", "shape", "strides", "dtype")  # all that checks of a gradient look at


class Plan:
    """The arrays that the last call has checked, tables of where they lie, and what a device holds of the settings.

    A call whose arrays are the same ones as the last time looks at none of them again, but for the gradients, which
    are made anew at each step: they are looked at by layout. Results do not depend on it: a call without a plan begins
    with an empty one. It belongs to one function and one call site; it keeps no array alive. Nothing that a device
    holds of it is ever written anew but by the kernels and for new hyper-parameters, so a captured launch may be
    repeated as long as somebody keeps the plan's `tables` and `settings`.

    laid    (gradients, parameters) -> the gradients, each laid as its parameter. Without it they must be
    """

    __slots__ = ("_arrays", "_kept", "_layouts", "_make", "_rows", "elements", "laid", "settings", "sizes", "tables")

    def __init__(self, laid=None):
        self.laid = laid
        self._arrays: dict[str, list | None] = {}  # weak references, by the name of the list; None: it is not there
        self._layouts: list[tuple] = []  # of the gradients
        self._rows: dict[str, tuple] = {}  # addresses, none of a list that is not there
        self._make = None, None  # functions, see remember
        self._kept: OrderedDict[tuple, tuple] = OrderedDict()  # tables by the row of the gradients
        self.sizes: list[int] = []
        self.elements = 0  # of all parameters
        self.tables = self.settings = None  # of the device's own kind

    def __reduce__(self):
        return Plan, (self.laid,)  # a copy knows nothing yet

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
            self.__init__(self.laid)
            self._note(lists)
        plan = Plan(self.laid)
        plan.settings = self.settings
        return plan

    def _note(self, lists):
        for name, arrays in lists.items():
            gone = arrays is None or name == "gradients"
            self._arrays[name] = None if gone else [weakref.ref(array) for array in arrays]

    def _same(self, name, arrays):
        known = self._arrays[name]
        if known is None or arrays is None:
            return known is arrays
        return len(known) == len(arrays) and all(map(is_, [reference() for reference in known], arrays))

    def follows(self, lists):
        """Whether all lists hold the same arrays as the last time, or gradients that lie as the last ones did.

        If so, `tables` are theirs.
        """
        if self._arrays.keys() != lists.keys():
            return False
        for name, arrays in lists.items():
            if name != "gradients" and not self._same(name, arrays):
                return False
        if "gradients" in lists:
            gradients = lists["gradients"]
            try:
                if list(map(_layout, gradients)) != self._layouts:
                    return False
            except (AttributeError, TypeError):  # they are no arrays, as checks will say
                return False
            addresses, tables = self._make
            row = addresses(gradients)
            found = self._kept.get(row)
            if found is None:
                found = tables(tuple({**self._rows, "gradients": row}.values()), self.sizes, gradients[0])
            self._take(row, found)
        return True

    def changed(self, lists):
        """The names of the lists that may hold other arrays than the last time: all where the first one does."""
        if self._arrays.keys() != lists.keys():
            return list(lists)
        names = [name for name, arrays in lists.items() if name == "gradients" or not self._same(name, arrays)]
        return list(lists) if names and names[0] == next(iter(lists)) else names

    def remember(self, changed, lists, addresses, tables):
        """Note lists that have been checked, and take tables for them, made where none are kept.

        addresses: a row of them, of arrays; tables: made from rows, from sizes, for arrays such as one that is given
        """
        first = next(iter(lists))
        if first in changed:
            if self._arrays:
                self.__init__(self.laid)
            self.sizes = [array.size for array in lists[first]]
            self.elements = sum(self.sizes)
            self._make = addresses, tables
        known, kept = self._rows, self._kept if changed == ["gradients"] else OrderedDict()
        rows = {n: addresses(lists[n] or ()) if n in changed else known[n] for n in lists}
        row = rows.get("gradients", ())
        found = kept.get(row) or tables(tuple(rows.values()), self.sizes, lists[first][0])
        self._rows, self._kept, self._layouts = rows, kept, list(map(_layout, lists.get("gradients", ())))
        self._take(row, found)
        self._note({name: lists[name] for name in changed})

    def _take(self, row, found):
        if found is not self.tables:
            self._kept[row] = self.tables = found
            self._kept.move_to_end(row)  # the last one used stands last
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
