"""What checks of arguments gave, kept, so that a step that repeats does not make them again."""

__all__ = ["Checked"]


class Checked:
    """Results of checks, found again by shapes and by the settings themselves, the very same objects.

    Objects and not their values: 1 == True == 1.0, but they are not all right. Only what cannot change is kept, whole
    numbers, texts, and tuples of whole numbers; it is kept alive, so that no other object can take its place.
    """

    MOST = 1024

    def __init__(self):
        self._kept = {}

    def found(self, shapes, settings):
        """What was kept for equal shapes, all of one kind, and the same settings; else None."""
        entry = self._kept.get((shapes, *map(id, settings)))
        return None if entry is None else entry[1]

    def keep(self, shapes, settings, result):
        """Keep a result that is not None, unless a setting could change; returns it."""
        if all(map(_is_constant, settings)):
            if len(self._kept) >= self.MOST:
                self._kept.clear()
            self._kept[(shapes, *map(id, settings))] = settings, result
        return result


def _is_constant(value):
    return type(value) in (int, bool, str) or type(value) is tuple and all(type(one) is int for one in value)
