"""What one place that calls an update, step after step, keeps in between."""

__all__ = ["Plan"]

KEPT = 4  # tables: gradients that are made anew at each step lie in turn at a few places


class Plan:
    """The layouts of the arrays that were checked last, tables of where arrays lie, and a device's settings.

    Arrays that lie as the last ones did, and all but the gradients where the last ones did, are not checked again. The
    CPU tells arrays apart by their id instead: its tables name the arrays, not their memory.
    Results do not depend on it: a call without a plan begins with an empty one. It belongs to one function and one call
    site; it keeps no array alive. Nothing that a device holds of it is ever written anew but by the kernels and for new
    hyper-parameters, so a captured launch may be repeated as long as somebody keeps the plan's `tables` and `settings`.

    laid    (gradients, parameters) -> the gradients, each laid as its parameter. Without it they must be
    """

    def __init__(self, laid=None):
        self.laid = laid
        self.settings = self.tables = None  # of the device's own kind
        self.elements = 0  # of all parameters
        self._layouts = []  # of the arrays of each list
        self._rows = ()  # for each list, where its arrays lie, or which they are; none where it is not there
        self._kept = {}  # tables by their rows, the last one used stands last
        self._addresses = self._make = None  # functions, see remember

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

    def follows(self, lists):
        """Whether nothing has to be checked, see above. If so, `tables` are those of these lists.

        lists: by name, those of the parameters first, then of the gradients; None for a state that is not there
        """
        try:
            layouts = _layouts(lists)
        except (AttributeError, TypeError):  # they are no arrays, as checks will say
            return False
        if layouts != self._layouts:
            return False
        rows = self._rows_of(lists)
        if rows[0] != self._rows[0] or rows[2:] != self._rows[2:]:
            return False
        self._take(rows, lists)
        return True

    def remember(self, lists, addresses, tables):
        """Note lists that have been checked, and take tables for them, made where none are kept.

        addresses: a row of where arrays lie, or of their ids
        tables: made from rows, from sizes, for arrays such as one that is given
        """
        layouts, self._addresses, self._make = _layouts(lists), addresses, tables
        if layouts != self._layouts:
            self._kept.clear()
        self._take(self._rows_of(lists), lists)
        self._layouts = layouts

    def _rows_of(self, lists):
        return tuple([self._addresses(arrays or ()) for arrays in lists.values()])

    def _take(self, rows, lists):
        self.tables = self._kept.pop(rows, None)
        if self.tables is None:
            parameters = next(iter(lists.values()))
            sizes = [array.size for array in parameters]
            self.elements, self.tables = sum(sizes), self._make(rows, sizes, parameters[0])
        self._rows, self._kept[rows] = rows, self.tables
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]


def _layouts(lists):
    """All that checks of a gradient look at, of each array."""
    return [arrays and [(a.__class__, a.shape, a.strides, a.dtype) for a in arrays] for arrays in lists.values()]
