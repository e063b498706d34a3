"""The greatest element and the sum of a row, and a row less a number.

Whole vectors, the last one masked. Compilers leave loops that add up as they are, one element after the other,
because another order would round otherwise. Of a row less a number they take several vectors at a time, and what is
left, all of a short row, one by one.
"""

from .emit import emitted

__all__ = ["row_greatest", "row_shift", "row_sum"]

ABREAST = 4  # totals, each of one vector, that do not wait for each other


def _joined(emit, x, at, count, empty, join):
    """The elements of a row joined in pairs; `empty` changes nothing.

    Vectors that follow each other go into ABREAST totals of their own, so that none waits for the one before.
    """
    totals = [emit.variable(emit.filled(empty)) for _ in range(ABREAST)]
    groups = count // (ABREAST * emit.lanes)
    with emit.loop(groups) as group:
        for k, total in enumerate(totals):
            total.set(join(total.get(), x.load(at + group * (ABREAST * emit.lanes) + k * emit.lanes)))
    done = groups * (ABREAST * emit.lanes)
    with emit.loop((count - done + (emit.lanes - 1)) // emit.lanes) as step:
        first = done + step * emit.lanes
        mask = emit.mask(count - first)
        elements = x.load(at + first, mask).where(mask, emit.filled(empty))
        totals[0].set(join(totals[0].get(), elements))
    found = [total.get() for total in totals]
    while len(found) > 1:
        found = [join(one, other) for one, other in zip(found[::2], found[1::2], strict=True)]
    return found[0].folded(join)


@emitted(result=lambda x, at, count: x.dtype)
def row_greatest(emit, x, at, count):
    """The greatest of x[at : at + count], where x is 1-D; NaN is passed over."""
    return _joined(emit, x, at, count, float("-inf"), lambda total, new: new.where(new > total, total))


@emitted(result=lambda x, at, count: x.dtype)
def row_sum(emit, x, at, count):
    """The sum of x[at : at + count], where x is 1-D.

    Each lane of ABREAST vectors by itself, then these in pairs, then the lanes in halves.
    """
    return _joined(emit, x, at, count, 0, lambda total, new: total + new)


@emitted(numbers="by further")
def row_shift(emit, x, by, further, out):
    """out = (x - by) - further, for each element of out; both are 1-D."""
    emit.whole_vectors(out.count, lambda k, mask: out.store(x.load(k, mask) - by - further, k, mask))
