"""What one place that calls an update, step after step, keeps in between; how the work on many arrays is cut."""

from functools import lru_cache

import numpy as np

from ..launcher import layouts_of

KEPT = 4  # tables: gradients that are made anew at each step lie in turn at a few places


class Plan:
    """The layouts of the arrays that were checked last, tables of where arrays lie, and a device's settings.

    Arrays that lie as the last ones did, wherever that is, are not checked again. The CPU tells arrays apart by their
    id: its tables name the arrays, not their memory.
    Results do not depend on it: a call without a plan begins with an empty one. It belongs to one function and one call
    site; it keeps no array alive. Nothing that a device holds of it is ever written anew but by the kernels and for new
    hyper-parameters, so a captured launch may be repeated as long as somebody keeps the plan's `tables` and `settings`.

    laid    (gradients, parameters) -> the gradients, each laid as its parameter. Without it they must be
    """

    def __init__(self, laid=None):
        self.laid = laid
        self.settings = self.tables = None  # of the device's own kind
        self.elements = 0  # of all parameters
        self._layouts = None  # of the arrays of each list
        self._kept = {}  # tables by where the arrays of each list lie, the last one used stands last
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
            known = self._layouts == _layouts(lists)
        except (AttributeError, TypeError):  # they are no arrays, as checks will say
            return False
        if known:
            self._take(lists)
        return known

    def remember(self, lists, addresses, tables):
        """Note lists that have been checked, and take tables for them, made where none are kept.

        addresses: a row of where arrays lie, or of their ids
        tables: made from rows, from sizes, for arrays such as one that is given
        """
        self._addresses, self._make = addresses, tables
        self._kept.clear()
        self._take(lists)
        self._layouts = _layouts(lists)

    def _take(self, lists):
        rows = tuple([self._addresses(arrays or ()) for arrays in lists.values()])
        self.tables = self._kept.pop(rows, None)
        if self.tables is None:
            parameters = next(iter(lists.values()))
            sizes = tuple([array.size for array in parameters])
            self.elements, self.tables = sum(sizes), self._make(rows, sizes, parameters[0])
        self._kept[rows] = self.tables
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]


def _layouts(lists):
    """All that checks look at, of each array."""
    return [arrays and layouts_of(arrays, arrays[0]) for arrays in lists.values()]


@lru_cache(maxsize=256)
def chunks_of(sizes, most):
    """How arrays of these sizes are cut into chunks of so many elements or fewer.

    Returns a row for each chunk: its array, its first element there, how many it has; and of each array the number of
    its first chunk, with that of all chunks behind them
    """
    counts = -(-np.array(sizes, np.int64) // most)
    starts = np.concatenate([[0], np.cumsum(counts)])
    tensor = np.repeat(np.arange(len(sizes)), counts)
    first = (np.arange(tensor.size) - starts[tensor]) * most
    return np.stack([tensor, first, np.minimum(np.array(sizes)[tensor] - first, most)], axis=1), starts
