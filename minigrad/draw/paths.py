"""The ways that optimisers take over a surface."""

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from .style import COLORS, DASHES, MARKERS, array_of, axes_of, plain

__all__ = ["optimizer_paths"]


def optimizer_paths(function, paths, axes=None, xlim=None, ylim=None):
    """Draw the contours of a function of two numbers, and paths over them; returns the Axes.

    function    function(x, y) on arrays (of one shape), the surface
    paths       {name: (T, 2)}: T points (x, y) that an optimiser visited, from the first to the last
    xlim, ylim  (lowest, highest) of the picture; by default what the paths cover, with a margin
    The first point of a path is a circle, the last its marker, larger. Contours lie denser where the surface is low.
    Errors  ValueError for no paths, another shape, limits that do not rise or a surface that is nowhere finite
    """
    op = "optimizer_paths"
    if not callable(function):
        raise KindError(f"{op}: function is a {type(function).__name__}, wanted function(x, y) on arrays")
    if not isinstance(paths, dict) or not paths:
        raise ShapeError(f"{op}: paths is {paths!r:.60}, wanted {{name: (T, 2) array}} with at least one")
    paths = {name: array_of(op, f"paths[{name!r}]", path, ("T", 2)) for name, path in paths.items()}
    points = np.concatenate([path[np.isfinite(path).all(1)] for path in paths.values()])
    limits = [
        _limits(op, name, given, points[:, i]) for i, (name, given) in enumerate((("xlim", xlim), ("ylim", ylim)))
    ]
    axes = axes_of(op, axes, 7, 5)
    _contours(op, axes, function, *limits)
    for i, (name, path) in enumerate(paths.items()):
        color, marker = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]
        style = {"color": color, "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.6}
        axes.plot(
            *path.T,
            marker=marker,
            markersize=4,
            markevery=max(1, len(path) // 12) if len(path) > 40 else 1,
            label=plain(name),
            **style,
        )
        axes.plot(*path[-1], marker=marker, markersize=9, color=color, markeredgecolor="white", zorder=4)
        axes.plot(*path[0], marker="o", markersize=6, color="white", markeredgecolor="black", zorder=4)
    axes.set(xlabel="x", ylabel="y", xlim=limits[0], ylim=limits[1])
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False)
    return axes


def _limits(op, name, given, values):
    if given is None:
        if not len(values):
            raise ShapeError(f"{op}: paths has no finite point; pass xlim and ylim")
        margin = 0.15 * (values.max() - values.min()) or 1.0
        return values.min() - margin, values.max() + margin
    low, high = array_of(op, name, given, (2,))
    if not low < high:
        raise ShapeError(f"{op}: {name} is {given}, wanted (lowest, highest)")
    return low, high


def _contours(op, axes, function, xlim, ylim):
    x, y = np.meshgrid(np.linspace(*xlim, 200), np.linspace(*ylim, 200))
    surface = array_of(op, "function(x, y)", function(x, y), x.shape)
    finite = surface[np.isfinite(surface)]
    if not finite.size:
        raise ShapeError(f"{op}: function is nowhere finite between {xlim} and {ylim}")
    low, high = finite.min(), finite.max()
    if low == high:
        return  # a plane has no contours
    levels = low + (high - low) * np.linspace(0.04, 1, 14) ** 3
    lines = axes.contour(x, y, np.ma.masked_invalid(surface), levels, colors="#999999", linewidths=0.8)
    axes.clabel(lines, lines.levels[2::2], fontsize=7, fmt="%.3g")
