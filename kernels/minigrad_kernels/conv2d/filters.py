"""The gradient of a filter from its partial sums."""

from ..toolchain import jit

__all__ = ["fold"]


@jit
def fold(sums, pixels, steps, dw):
    """dw, [p][q][c][o], from a partial sum; see plan.Way."""
    for p in range(dw.shape[0]):
        for q in range(dw.shape[1]):
            for c in range(dw.shape[2]):
                for o in range(dw.shape[3]):
                    place = p * steps[1] + q * steps[2] + c * steps[3] + o * steps[4]
                    total = sums[place]
                    for pixel in range(1, pixels):
                        total += sums[place + pixel * steps[0]]
                    dw[p, q, c, o] = total
