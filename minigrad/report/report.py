"""What a training leaves to be looked at, and the page that shows it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minigrad_kernels.errors import MinigradError

from ..checkpoint import write_atomic
from ..nn import Module
from ..train import History
from ..train.team import module_of
from . import sections
from .page import document, note

__all__ = ["SECTIONS", "Report"]

SECTIONS = (
    ("result", "", sections.result),
    ("curves", "Learning curves", sections.curves),
    ("mistakes", "What it gets wrong", sections.mistakes),
    ("filters", "What the first layer looks for", sections.filters),
    ("distributions", "Weights and gradients over the epochs", sections.distributions),
    ("cost", "Where time and memory go", sections.cost),
    ("model", "The network", sections.network),
    ("origin", "How it was made", sections.origin),
)


@dataclass
class Report:
    """The figures of a training as one page. What is not given is left out, and the page says so.

    title       heading of the page
    history     History of the training
    model       the network, with the weights that are reported
    shape       of an image, (C, H, W)
    classes     their names
    state       a sentence: whether the training is done, and where it stopped
    figures     {name: text} to stand beside those of the history, at the top
    test        Dataset of the test images
    predictions what train.predict gives on them, unshuffled: (probabilities (N, classes), targets (N,))
    records     those of the train.Histograms callback
    profile     that of a step, as profile.measure_step gives it
    measured    a sentence: what that step was
    origin      {heading: {name: text}}: command, settings, versions, whatever else it takes to do it again
    lacking     {name of a section: a sentence}: why something is missing there

    Sections    result, curves, mistakes, filters, distributions, cost, model, origin
    """

    title: str
    history: History
    model: Module
    shape: tuple
    classes: tuple
    state: str = ""
    figures: dict = field(default_factory=dict)
    test: Any = None
    predictions: tuple | None = None
    records: dict = field(default_factory=dict)
    profile: Any = None
    measured: str = "One training step."
    origin: dict = field(default_factory=dict)
    lacking: dict = field(default_factory=dict)

    def __post_init__(self):
        self.model = module_of(self.model)

    def html(self):
        """The page as text."""
        return document(self.title, [(anchor, head, self._written(anchor, part)) for anchor, head, part in SECTIONS])

    def _written(self, anchor, content):
        """A section: what cannot be drawn, weights that are not finite say, costs the others nothing."""
        said = note(self.lacking[anchor]) if anchor in self.lacking else ""
        try:
            return said + content(self)
        except MinigradError as error:
            return said + note(f"This could not be drawn: {error}")

    def save(self, path):
        """Write the page to a file, in place of one that is there, in one step."""
        write_atomic(Path(path), self.html().encode())
