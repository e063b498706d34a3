"""Training: the loop, its measure on other data, its history, and what hangs on it."""

from .callback import Callback
from .history import History, Running
from .interruption import Interruption
from .loop import evaluate, fit
from .progress import Progress

__all__ = ["Callback", "History", "Interruption", "Progress", "Running", "evaluate", "fit"]
