"""What the lanes of a warp do together: shuffle, vote, match and redux on arrays of shape (warps, 32).

`members` (warps, 32) bool names the lanes that take part: active, and in the member mask. What a lane that is no member
gets is without meaning. Types: integers of 32 bits, for match also of 64 bits, or floats of that size as bit patterns.

Source  PTX ISA: shfl.sync, vote.sync, match.sync, redux.sync
"""

import numpy as np

from ..errors import StateError

__all__ = ["source_lane", "shuffle", "vote", "match_any", "match_all", "redux"]

WARP = 32
LANE = np.arange(WARP)
BIT = np.uint32(1) << LANE.astype(np.uint32)


def source_lane(mode, b, c):
    """The lane j that each lane reads in a shuffle, and whether the j it asked for lies in its segment.

    Shapes  b, c: integers that broadcast to (warps, 32): lane or offset; clamp in bits 0-4, segment mask in bits 8-12
    Errors  StateError for a mode other than up, down, bfly, idx
    """
    b, c = np.asarray(b).astype(np.int64), np.asarray(c).astype(np.int64)
    offset, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    first = LANE & segment
    last = first | (clamp & ~segment)
    if mode == "up":
        lane = LANE - offset
        in_range = lane >= last
    elif mode in ("down", "bfly", "idx"):
        lane = {"down": LANE + offset, "bfly": LANE ^ offset, "idx": first | (offset & ~segment)}[mode]
        in_range = lane <= last
    else:
        raise StateError(f"shfl: mode: got {mode}, wanted up, down, bfly or idx")
    return np.where(in_range, lane, LANE), in_range


def shuffle(mode, value, b, c):
    """(result, in_range): the value of the lane that `source_lane` names; a lane out of range keeps its own.

    Shapes  value (warps, 32) of any type; b, c broadcast to it; result and in_range (warps, 32)
    """
    lane, in_range = source_lane(mode, b, c)
    lane, in_range = np.broadcast_to(lane, value.shape), np.broadcast_to(in_range, value.shape)
    return np.take_along_axis(value, lane, axis=1), in_range


def vote(mode, predicate, members):
    """all, any, uni (the same in all members): (warps, 32) bool; ballot: (warps, 32) uint32, bit l for lane l."""
    votes = predicate & members
    if mode == "ballot":
        return _mask(votes)
    some, every = votes.any(axis=1, keepdims=True), (votes == members).all(axis=1, keepdims=True)
    results = {"all": every, "any": some, "uni": every | ~some}
    if mode not in results:
        raise StateError(f"vote: mode: got {mode}, wanted all, any, uni or ballot")
    return np.broadcast_to(results[mode], members.shape)


def match_any(value, members):
    """For each lane the mask of the members that hold its value: (warps, 32) uint32."""
    bits = _bits(value)
    equal = (bits[:, :, None] == bits[:, None, :]) & members[:, None, :]
    return np.where(equal, BIT, np.uint32(0)).sum(axis=2, dtype=np.uint32)


def match_all(value, members):
    """(mask, predicate): the mask of all members and True where all of them hold one value, else 0 and False."""
    bits = _bits(value)
    first = np.take_along_axis(bits, members.argmax(axis=1)[:, None], axis=1)
    same = np.broadcast_to(((bits == first) | ~members).all(axis=1, keepdims=True), members.shape)
    return np.where(same, _mask(members), np.uint32(0)), same


def redux(op, value, members):
    """The members' values reduced by add (wrapping), min, max, and, or, xor; the type says whether they are signed.

    Shapes  value (warps, 32) of int32 or uint32, the result alike: the same number in all lanes of a warp
    """
    limits = np.iinfo(value.dtype)
    table = {
        "add": (np.add, 0),
        "min": (np.minimum, limits.max),
        "max": (np.maximum, limits.min),
        "and": (np.bitwise_and, -1 if limits.min else limits.max),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }
    if op not in table:
        raise StateError(f"redux: operation: got {op}, wanted one of {', '.join(table)}")
    function, neutral = table[op]
    values = np.where(members, value, value.dtype.type(neutral))
    return np.broadcast_to(function.reduce(values, axis=1, keepdims=True, dtype=value.dtype), value.shape)


def _bits(value):
    """Floats are compared by their bits: NaN equals itself, -0 is not +0."""
    return value.view(f"u{value.dtype.itemsize}")


def _mask(lanes):
    """(warps, 32) bool to (warps, 32) uint32: bit l of every lane's number is lane l."""
    masks = np.where(lanes, BIT, np.uint32(0)).sum(axis=1, keepdims=True, dtype=np.uint32)
    return np.broadcast_to(masks, lanes.shape)
