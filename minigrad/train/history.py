"""What happened in training: a row for each epoch."""

import json
import math
from dataclasses import asdict, dataclass


@dataclass
class Running:
    """Sums over the part of an epoch that is done.

    seconds and timed_images leave out the first update of a call of fit, in which kernels are compiled.
    """

    lr: float | None = None  # of the first update
    loss: float = 0.0  # of the images, added up
    correct: int = 0
    images: int = 0
    seconds: float = 0.0
    timed_images: int = 0
    skipped: int = 0  # updates left out, as gradients overflowed
    pending: int = 0  # images whose figures have not come from the GPU yet
    trained: bool = False  # whether only the evaluation is missing

    def row(self):
        """The rate, the means, and the images per second: None if no time was counted."""
        count = self.images or math.nan
        speed = self.timed_images / self.seconds if self.seconds else None
        means = {"loss": self.loss / count, "accuracy": self.correct / count}
        return {"lr": self.lr, **means, "images_per_second": speed}


def _nothing():
    """What a history waits for where no figures are on their way."""


class History:
    """Rows of figures, one for each epoch, in order.

    rows                dictionaries; history[i] is a row, history["loss"] the list of one figure
    steps               updates so far
    running             the sums of the epoch under way; on a GPU whoever asks waits for figures that are on their way
    latest              the same without waiting: `pending` images have no figures yet

    Units   loss is the mean over the images, accuracy is a fraction of 1
    """

    def __init__(self, rows=()):
        self.rows = [dict(row) for row in rows]
        self.steps = 0
        self.latest, self.settle = Running(), _nothing

    @property
    def running(self):
        self.settle()
        return self.latest

    def close(self):
        """Wait for the figures that are on their way; no more will come."""
        self.settle()
        self.settle = _nothing

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, key):
        return [row.get(key) for row in self.rows] if isinstance(key, str) else self.rows[key]

    def append(self, row):
        """Close the epoch under way with this row."""
        self.rows.append(dict(row))
        self.latest = Running()

    def columns(self):
        """The names of the figures, in the order in which they appear first."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def to_jsonl(self):
        """The rows as JSON, one a line."""
        return "".join(json.dumps(row) + "\n" for row in self.rows)

    def state_dict(self):
        """Everything that a continued training needs, as JSON values."""
        return {"running": asdict(self.running), "rows": list(map(dict, self.rows)), "steps": self.steps}

    def load_state_dict(self, state):
        """Continue what state_dict() described."""
        rows, running = [dict(row) for row in state["rows"]], Running(**state["running"])
        self.rows, self.steps, self.latest = rows, state["steps"], running

    def __repr__(self):
        return f"History({len(self)} epochs, {self.steps} steps)"
