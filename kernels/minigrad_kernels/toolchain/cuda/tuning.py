"""Which of several kernels that give the same bits is the fastest on this GPU: timed once, then known.

A family names its candidates for a call, by the order of their sums alone: equal bits, so that what is chosen changes
no result, and two processes that choose differently agree. The table of the family decides where there is one candidate
or nothing may be timed: with MINIGRAD_TUNE=0, and while a graph is captured, which takes what is known.

Each candidate is started once, so that it is compiled and loaded, and then RUNS times between two events; the least
median wins, the first candidate where two are equal. The choice is kept in the user's cache beside machine code, in
a file for each call, named by a hash of the kernels' own keys, of the call and of the device.
"""

import functools
import hashlib
import os
import statistics

import numpy as np

from ..cache import load_file, save_file, user_cache
from ..modes import capturing

__all__ = ["chosen"]

RUNS = 5
_known: dict[tuple, str | None] = {}


def chosen(op, call, candidates, start, like):
    """The name of the fastest candidate; None where the family's table is to decide.

    call        what tells this call from others: numbers, texts, tuples of them
    candidates  a function that gives {name: Kernel}
    start       start(name) gives a candidate's launches to the current stream; it may do so any number of times
    like        an array of the call; those of the host and of the interpreter are not timed
    """
    if isinstance(like, np.ndarray):
        return None
    key = like.data.device_id, op, call
    try:
        return _known[key]
    except KeyError:
        pass
    if os.environ.get("MINIGRAD_TUNE") == "0":
        return None
    found = candidates()
    if len(found) < 2:
        _known[key] = None
        return None
    file = _file(op, call, found, like.data.device_id)
    name = (load_file(file) or b"").decode()
    if name not in found:
        if capturing.get() is not None:
            return None
        times = {name: _median(functools.partial(start, name)) for name in found}
        name = min(times, key=times.__getitem__)
        save_file(file, name.encode())
    _known[key] = name
    return name


def _median(start):
    """Milliseconds."""
    from .launch import milliseconds

    start()
    return statistics.median([milliseconds(start) for _ in range(RUNS)])


def _file(op, call, candidates, device):
    """Where the choice lies."""
    from .launch import device_name

    parts = op, call, device_name(device), [(name, kernel.key) for name, kernel in candidates.items()]
    return user_cache() / "tuned" / f"{op}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"
