"""Which rung of a ladder of kernels runs."""

from ...errors import ShapeError

__all__ = ["choose"]


def choose(op, rung, misfits):
    """The name of a rung: the one that was asked for, or the highest that fits.

    misfits: for each name, lowest first, what the rung wants and does not get, in words; None where it fits
    Errors  ValueError if there is no such rung, or it does not fit
    """
    if rung is None:
        return next(name for name in reversed(misfits) if misfits[name] is None)
    if rung not in misfits:
        raise ShapeError(f"{op}: rung is {rung!r}, wants one of {', '.join(misfits)}")
    if misfits[rung] is not None:
        raise ShapeError(f"{op}: the rung {rung} wants {misfits[rung]}; without a name the best that fits is chosen")
    return rung
