"""Training: the loop, its measure on other data, its history, and what hangs on it."""

from .callback import Callback
from .evaluation import evaluate
from .histograms import Histograms
from .history import History, Running
from .interruption import Interruption
from .loop import fit
from .precision import PRECISIONS
from .predictions import confusion_matrix, predict
from .progress import Progress
from .tensorboard import TensorBoard

__all__ = [
    "PRECISIONS",
    "Callback",
    "Histograms",
    "History",
    "Interruption",
    "Progress",
    "Running",
    "TensorBoard",
    "confusion_matrix",
    "evaluate",
    "fit",
    "predict",
]
