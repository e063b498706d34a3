"""How a copy is cut into runs of bytes that lie side by side in both arrays."""

import functools

__all__ = ["SHORTEST", "runs"]

SHORTEST = 64  # bytes of a run; shorter ones cost less by NumPy's loops
AXES = 3


@functools.lru_cache(maxsize=4096)
def runs(shape, strides, out_strides, itemsize):
    """(bytes of a run, (count, step, step of out) of each of AXES axes, slowest first); None where runs are short.

    Axes are taken in the order in which out lies, and those that follow each other without a gap in both are one.
    """
    axes = [axis for axis in zip(shape, strides, out_strides, strict=True) if axis[0] != 1]
    axes.sort(key=lambda axis: -abs(axis[2]))
    length = itemsize
    while axes and axes[-1][1:] == (length, length):
        length *= axes.pop()[0]
    merged = []
    for count, step, out_step in axes:
        if merged and merged[-1][1:] == (count * step, count * out_step):
            count *= merged.pop()[0]
        merged.append((count, step, out_step))
    if length < SHORTEST or len(merged) > AXES:
        return None
    return length, ((1, 0, 0),) * (AXES - len(merged)) + tuple(merged)
