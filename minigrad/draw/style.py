"""What all pictures share: colours, figures, and how arguments are read.

Source  Okabe and Ito 2008, "Color universal design: how to make figures and presentations that are friendly to
        colorblind people" (the palette)
"""

from pathlib import Path

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..core.tensor import Tensor

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # without yellow, too light for lines
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
HATCH = "#FFFFFF73"  # the colour of hatches


def axes_of(axes, width, height):
    """The Axes to draw into: those given, or those of a new figure of so many inches.

    The figure is none of pyplot's, so that pyplot and the user's choice of backend are not touched.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").add_subplot() if axes is None else axes


def laid_out(axes):
    """The width and height of the Axes in points, once the layout of their figure is settled."""
    figure = axes.figure.canvas.figure  # of a subfigure too
    figure.draw_without_rendering()
    extent = axes.get_window_extent()
    return extent.width * 72 / figure.dpi, extent.height * 72 / figure.dpi


def color_bar(shown, label):
    """A colour bar beside a picture, as high as it, for which a constrained layout makes room."""
    shown.axes.figure.colorbar(shown, cax=shown.axes.inset_axes([1.03, 0, 0.04, 1]), label=label)


def array_of(op, name, value, shape, dtype=np.float64):
    """The elements of a Tensor, array or list as an array of NumPy's; of their own type where dtype is None.

    shape   letters and numbers, such as ("O", "C", "p", "q"): how many axes there must be, with what lengths
    Errors  TypeError for what is no array of real numbers, ValueError for another shape, no elements or some that are
            not finite
    """
    value = value.array if isinstance(value, Tensor) else value
    array = np.asarray(device.host(value) if device.is_array(value) else value)
    wanted = str(shape).replace("'", "")
    if array.dtype.kind not in "fiub":
        raise KindError(f"{op}: {name} is a {type(value).__name__}, wanted an array of real numbers {wanted}")
    lengths = [want if isinstance(want, int) else length for want, length in zip(shape, array.shape, strict=False)]
    if array.ndim != len(shape) or array.shape != tuple(lengths) or not array.size:
        raise ShapeError(f"{op}: {name} has shape {array.shape}, wanted {wanted}")
    if not np.isfinite(array).all():
        raise ShapeError(f"{op}: {name} has elements that are not finite")
    return array if dtype is None else array.astype(dtype)


def labels_of(labels, count):
    """The names of so many classes: as given, else their numbers."""
    return [plain(label) for label in (range(count) if labels is None else labels)]


def plain(text):
    """A text of the user in which matplotlib reads no formulas."""
    return str(text).replace("$", r"\$")


def save(axes, path):
    """Write the figure of some Axes to a file: PNG, SVG or PDF, by the ending of its name; returns the path.

    Errors  ValueError for an ending that matplotlib does not know
    """
    axes.figure.canvas.figure.savefig(path, dpi=120, bbox_inches="tight")
    return Path(path)
