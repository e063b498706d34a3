"""Steps: what an instruction does to a machine, as closures over the slots of its operands."""

import numpy as np

__all__ = ["address_of", "compute", "copy", "guarded", "sequence"]


def copy(target, source):
    def step(m):
        m.r[target][m.at] = m.r[source][m.at]

    return step


def sequence(steps):
    """One after the other."""

    def step(m):
        for part in steps:
            part(m)

    return step


def _one(function, target, a):
    def step(m):
        r, at = m.r, m.at
        r[target][at] = function(r[a]) if m.full else function(r[a][at])

    return step


def _two(function, target, a, b):
    def step(m):
        r, at = m.r, m.at
        r[target][at] = function(r[a], r[b]) if m.full else function(r[a][at], r[b][at])

    return step


def _two_in_place(function, target, a, b):
    """For NumPy's own functions, which can write where told."""

    def step(m):
        r = m.r
        if m.full:
            function(r[a], r[b], out=r[target])
        else:
            at = m.at
            r[target][at] = function(r[a][at], r[b][at])

    return step


def _three(function, target, a, b, c):
    def step(m):
        r, at = m.r, m.at
        r[target][at] = function(r[a], r[b], r[c]) if m.full else function(r[a][at], r[b][at], r[c][at])

    return step


def _many(function, targets, sources):
    def step(m):
        r, at = m.r, m.at
        results = function(*(r[source][at] for source in sources))
        for target, result in zip(targets, results if len(targets) > 1 else (results,), strict=True):
            r[target][at] = result

    return step


def compute(function, targets, sources):
    """Targets = function(sources), over the lanes that execute."""
    if len(targets) != 1 or len(sources) > 3:
        return _many(function, targets, sources)
    if len(sources) == 2 and isinstance(function, np.ufunc):
        return _two_in_place(function, *targets, *sources)
    return (_one, _two, _three)[len(sources) - 1](function, *targets, *sources)


def guarded(step, number, predicate, negated):
    """A step under a predicate."""

    def guarded_step(m):
        whole = m.lanes
        held = m.r[predicate][m.at]
        lanes = whole.only(~held if negated else held)
        if lanes is not None:
            m.enter(lanes)
            step(m)
            m.guarded[number] += lanes.warps
            m.enter(whole)

    return guarded_step


def address_of(slots, operand):
    """A function that gives the addresses (int64) of [base + offset] in the lanes that execute."""
    base, offset = operand
    kind = "u32" if getattr(base, "width", 8) == 4 else "s64"
    slot = slots.source(base, kind)
    if kind == "u32":
        return lambda m: m.r[slot][m.at].astype(np.int64) + offset
    if offset:
        return lambda m: m.r[slot][m.at] + offset
    return lambda m: m.r[slot][m.at]
