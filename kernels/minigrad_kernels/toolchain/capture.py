"""What this thread starts on a GPU may become part of a graph: then somebody records it.

    hold        (values) -> that the arrays of the device among them stay as long as the graph
    keep        (anything) -> likewise
    upload      a NumPy array -> an equal one on the device, there at once and for as long as the graph
    write       (an array of the device, NumPy's numbers): they are there when the graph is first launched
    note        (again, undo, check, after): what the host does besides. `again` does it once more before each replay,
                `undo` takes it back where the capture fails, `check` says before a replay whether the graph still
                holds, `after` is called with the graph after each launch, the first one included

Numbers that change from step to step lie on the device at one address. Who owns such an array notes how the host
renews it; see optimizer/cuda.py.
"""

import contextvars
from typing import Any

__all__ = ["capturing"]

capturing: contextvars.ContextVar[Any] = contextvars.ContextVar("capturing", default=None)
