"""How loops over elements are cut, by the number of elements alone. It imports no Numba, so that launchers can ask."""

__all__ = ["RUN", "SMALL", "runs", "workspace"]

RUN = 16384  # elements that a thread takes at a time
SMALL = 1 << 17  # elements; below it a second thread costs more than it brings


def runs(size):
    """How many runs so many elements make."""
    return -(-size // RUN)


def workspace(size):
    """The bytes that a sum of so many elements wants: a float64 for each run, where threads share them."""
    return 8 * runs(size) + 7 if size >= SMALL else 0
