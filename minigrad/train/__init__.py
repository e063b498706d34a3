"""Training: one update, the loop around it, its measure on other data, its history, and what hangs on it."""

from .callbacks import Callback, Histograms, Interruption, Progress
from .evaluation import confusion_matrix, evaluate, predict
from .history import History, Running
from .loop import fit
from .precision import PRECISIONS
from .trainer import Trainer

__all__ = [
    "PRECISIONS", "Callback", "Histograms", "History", "Interruption", "Progress", "Running", "Trainer",
    "confusion_matrix", "evaluate", "fit", "predict",
]  # fmt: skip
