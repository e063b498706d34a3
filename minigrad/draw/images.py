"""What a convolution sees and makes, and the images that a network gets wrong."""

import math

import numpy as np

from .style import array_of, axes_of, color_bar, labels_of, laid_out

__all__ = ["feature_maps", "filters", "worst_mistakes"]

GAP = 0.12  # between small pictures, of the length of one
MOST = 64  # channels in a row or column


def filters(weight, axes=None):
    """Draw the filters of a convolution as a grid of small pictures; returns the Axes.

    weight  (O, C, p, q). With C = 1 each picture is one filter; with C = 3 its picture in colour, mapped from the
            weights' range to 0..1; otherwise a row is an out-channel o and a column an in-channel c, of which the
            first 64 are drawn where there are more
    Units   one scale for all pictures: blue below 0, white at 0, red above
    Errors  ValueError for another shape, no elements or elements that are not finite
    """
    weight = array_of("filters", "weight", weight, ("O", "C", "p", "q"))
    count, channels = weight.shape[:2]
    if channels == 3:
        low, high = weight.min(), weight.max()
        pictures = (weight.transpose(0, 2, 3, 1) - low) / (high - low or 1)
        axes = _grid(axes, pictures, *_shape_of_grid(count))
        axes.set_xlabel(f"{count} filters in red, green and blue: weights {low:.2g} to {high:.2g} as 0 to full colour")
        return axes
    most, labels, (columns, rows) = np.abs(weight).max() or 1, {"xlabel": f"{count} filters"}, _shape_of_grid(count)
    if channels > 1:
        weight = weight[:MOST, :MOST]
        rows, columns = weight.shape[:2]
        labels = {"xlabel": f"in-channel c, 0 to {columns - 1} of {channels}"}
        labels["ylabel"] = f"out-channel o, 0 to {rows - 1} of {count}"
    pictures = weight.reshape(-1, *weight.shape[2:])
    axes = _grid(axes, pictures, columns, rows, "weight", cmap="RdBu_r", vmin=-most, vmax=most)
    axes.set(**labels)
    return axes


def feature_maps(maps, axes=None):
    """Draw the channels that a layer makes of one image as a grid of small pictures; returns the Axes.

    maps    (C, H, W), on one scale: from 0 (dark) up where nothing is negative, as after ReLU, else blue below and
            red above 0
    Errors  ValueError for another shape, no elements or elements that are not finite
    """
    maps = array_of("feature_maps", "maps", maps, ("C", "H", "W"))
    most = np.abs(maps).max() or 1
    signed = maps.min() < 0
    look = {"cmap": "RdBu_r" if signed else "viridis", "vmin": -most if signed else 0, "vmax": most}
    axes = _grid(axes, maps, *_shape_of_grid(len(maps)), "activation", **look)
    axes.set_xlabel(f"{len(maps)} channels")
    return axes


def worst_mistakes(images, targets, probabilities, axes=None, count=16, labels=None):
    """Draw the wrongly classified images whose true class was given the least probability; returns the Axes.

    images          (N, C, H, W), C = 1 or 3; each is stretched to the full range of brightness
    targets         (N,) true classes
    probabilities   (N, classes), which the network gave
    count           how many to show at most
    labels          names of the classes instead of their numbers
    Above each picture stand its true class and, behind an arrow, the predicted one with its probability.
    Errors  ValueError for shapes that do not fit together, IndexError for classes out of range
    """
    op = "worst_mistakes"
    images = array_of(op, "images", images, ("N", "C", "H", "W"), dtype=None)  # perhaps many
    probabilities = array_of(op, "probabilities", probabilities, (len(images), "classes"))
    targets = array_of(op, "targets", targets, (len(images),), dtype=None)
    labels = labels_of(labels, probabilities.shape[1])
    predicted, own = probabilities.argmax(1), probabilities[np.arange(len(images)), targets]
    wrong = np.flatnonzero(predicted != targets)
    shown = wrong[np.argsort(own[wrong], kind="stable")][:count]
    axes = axes_of(axes, 8, 8)
    axes.set_axis_off()
    if not len(shown):
        axes.text(0.5, 0.5, f"no mistakes among {len(images)} images", ha="center", va="center")
        return axes
    axes.set_title(f"{len(shown)} of {len(wrong)} mistakes, the worst first: true → predicted class", fontsize="medium")
    lines = [(labels[targets[i]], f"→ {labels[predicted[i]]}, {100 * probabilities[i].max():.0f} %") for i in shown]
    # Two lines of text above each picture, as large as its width allows.
    (columns, rows), (height, width), (wide, high) = _shape_of_grid(len(shown)), images.shape[2:], laid_out(axes)
    cell = max(1, min(wide / columns, (high / rows - 28) * width / height))  # its width in points; 28 for the lines
    size = min(10, 1.5 * cell / max(len(line) for pair in lines for line in pair))
    pictures = images[shown].transpose(0, 2, 3, 1).astype(np.float64)
    pictures -= pictures.min((1, 2, 3), keepdims=True)
    pictures /= np.maximum(pictures.max((1, 2, 3), keepdims=True), 1e-30)
    pictures = pictures[..., 0] if images.shape[1] == 1 else pictures
    captions = ["\n".join(pair) for pair in lines], size, 2.8 * size * (1 + GAP) / cell
    return _grid(axes, pictures, columns, rows, captions=captions, cmap="gray", vmin=0, vmax=1)


def _grid(axes, pictures, columns, rows, quantity=None, captions=((), 0, 0), **look):
    """Draw pictures (count, height, width) or (count, height, width, 3) row by row as one image.

    captions    (a text above each, the size of their letters, the height that they take in widths of a picture)
    """
    height, width = pictures.shape[1:3]
    axes = axes_of(axes, 6, min(12, max(2, 6 * rows * height / (columns * width))) + 0.5)
    # Each small picture is repeated so that the gap between two is a whole number of elements.
    times = math.ceil(8 / min(height, width))
    pictures = pictures.repeat(times, 1).repeat(times, 2)
    gap, above = max(1, round(GAP * min(pictures.shape[1:3]))), math.ceil(captions[2] * pictures.shape[2])
    steps = above + pictures.shape[1] + gap, pictures.shape[2] + gap
    nothing = np.nan if pictures.ndim == 3 else 1.0  # white: in colours nothing says that there is nothing
    mosaic = np.full((rows * steps[0] - gap, columns * steps[1] - gap, *pictures.shape[3:]), nothing)
    for position, picture in enumerate(pictures):
        y, x = position // columns * steps[0] + above, position % columns * steps[1]
        mosaic[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
    extent = (0, mosaic.shape[1] / steps[1], mosaic.shape[0] / steps[0], 0)  # a picture and its gap are one unit
    shown = axes.imshow(mosaic, extent=extent, interpolation="nearest", aspect=steps[0] / steps[1], **look)
    for position, text in enumerate(captions[0]):
        x, y = position % columns + 0.5 * pictures.shape[2] / steps[1], position // columns + above / steps[0]
        axes.text(x, y, text, fontsize=captions[1], linespacing=1.1, ha="center", va="bottom")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if quantity:
        color_bar(shown, quantity)
    return axes


def _shape_of_grid(count):
    """(columns, rows) of a grid that is about as wide as high."""
    columns = math.ceil(math.sqrt(count))
    return columns, math.ceil(count / columns)
