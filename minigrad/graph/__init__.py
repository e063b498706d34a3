"""A whole training step as one launch: functions whose work on a GPU is captured once and then replayed.

    step = minigrad.graph.capture(train_step)
    loss = step(images, labels)

See `capture`.
"""

from .captured import KEPT, WARM, Captured, capture
from .recorder import CaptureError

__all__ = ["KEPT", "WARM", "CaptureError", "Captured", "capture"]
