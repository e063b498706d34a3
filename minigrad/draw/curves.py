"""Learning curves."""

import math

from minigrad_kernels.errors import KindError, ShapeError

from .style import COLORS, axes_of, figure_of

__all__ = ["learning_curve", "save_learning_curve"]

STYLES = {"train": {"color": COLORS[0], "linestyle": "-"}, "test": {"color": COLORS[1], "linestyle": "--"}}
LABELS = {"loss": "loss", "accuracy": "accuracy (%)"}


def learning_curve(history, axes=None, quantity="loss"):
    """Draw the loss or accuracy on training and test data over the epochs of a History; returns the Axes.

    axes        matplotlib Axes to draw into; a new figure without a window where None
    quantity    "loss" or "accuracy"
    Errors  ValueError for another quantity or an empty history, TypeError for what is no History
    """
    if quantity not in LABELS:
        raise ShapeError(f"learning_curve: quantity is {quantity!r}, want one of {', '.join(LABELS)}")
    if not hasattr(history, "columns"):
        raise KindError(
            f"learning_curve: history is a {type(history).__name__}, want a train.History, as fit returns it"
        )
    if not len(history):
        raise ShapeError("learning_curve: history has no epochs")
    from matplotlib.ticker import MaxNLocator

    axes = axes_of("learning_curve", axes, 6, 4)
    scale = 100 if quantity == "accuracy" else 1
    for name, key in (("train", quantity), ("test", f"test_{quantity}")):
        values = [math.nan if value is None else scale * value for value in history[key]]
        if any(map(math.isfinite, values)):
            marker = "o" if len(values) <= 30 else None
            axes.plot(history["epoch"], values, marker=marker, markersize=3, label=name, **STYLES[name])
    axes.set_xlabel("epoch")
    axes.set_ylabel(LABELS[quantity])
    if len(history) == 1:
        axes.set_xlim(history[0]["epoch"] - 0.5, history[0]["epoch"] + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.grid(alpha=0.3)
    # Above the frame, where no curve can pass.
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    return axes


def save_learning_curve(history, file):
    """Write loss and accuracy, side by side, as a PNG picture to a path or a binary file."""
    figure = figure_of(10, 4)
    for axes, quantity in zip(figure.subplots(1, 2), LABELS, strict=True):
        learning_curve(history, axes, quantity)
    figure.savefig(file, format="png", dpi=120)
