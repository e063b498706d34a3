"""What this thread starts on a GPU may become part of a graph: then somebody records it.

    hold        (arrays) -> that they stay as long as the graph
    upload      a NumPy array -> an equal one on the device, there at once and for as long as the graph
    write       (an array of the device, NumPy's numbers): they are there when the graph is first launched
    note        (again, undo, check): what the host does besides. `again` does it once more before each replay, `undo`
                takes it back where the capture fails, `check` says before a replay whether the graph still holds

Numbers that change from step to step lie on the device at one address. Who owns such an array notes how the host
renews it; see optimizer/cuda.py.
"""

import contextvars
from typing import Any

__all__ = ["capturing"]

capturing: contextvars.ContextVar[Any] = contextvars.ContextVar("capturing", default=None)
