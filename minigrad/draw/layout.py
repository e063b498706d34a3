"""Where the boxes of a directed graph without cycles are put: in rows, with few crossings and bends.

A box lies one row below the lowest box that it depends on; one that depends on nothing lies right above the first that
needs it. Where an arrow passes rows, a bend without height holds its place in each, so arrows run between boxes and
never through them. Boxes of a row are ordered by the median of their neighbours, downwards and upwards in turn; then
each is drawn to its most important neighbours, as far as those beside it let it.

Source  Sugiyama, Tagawa and Toda 1981, "Methods for visual understanding of hierarchical system structures"; Gansner,
        Koutsofios, North and Vo 1993, "A technique for drawing directed graphs"
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import fmean, median_low

__all__ = ["Box", "arrange"]

ACROSS, DOWN = 22.0, 34.0  # the gaps between boxes of a row and between rows
BEND = 14.0  # the width that is kept free for an arrow
PORT = 16.0  # between two arrows that enter the same box
SWEEPS = 12
WEIGHTS = {"operation": 1e-2, "bend": 1e-3, "leaf": 1e-9, "constant": 1e-9}  # of two neighbours the lighter makes room


@dataclass(eq=False)
class Box:
    """An operation, or a Tensor that none made.

    kind        "operation"; "leaf": its gradient is computed; "constant": kept for backward, without a gradient
    title       the name of the operation or of the Tensor
    lines       shape, type and bytes of what it holds or makes
    x, y        its centre, in pixels; width and height likewise
    """

    kind: str
    title: str = ""
    lines: list = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    width: float = BEND
    height: float = 0.0


def arrange(boxes, edges):
    """Place boxes of known sizes; returns the points of each edge and the width and height of all.

    boxes   in an order in which every edge leads from a lower to a higher index
    edges   (from, to, ...) indices
    An edge leaves its box straight down to the end of the row and enters the next row from straight above: its points
    are pairs (x, end of a row), (x, beginning of the next). Edges of one box go the same way for as long as they can.
    """
    rows, paths = _rows(boxes, edges)
    above, below = ({box: [] for row in rows for box in row} for _ in range(2))
    for upper, lower in dict.fromkeys(pair for path in paths for pair in pairwise(path)):
        above[lower].append(upper)
        below[upper].append(lower)
    _order(rows, above, below)
    _place(rows, above, below)
    left = min(box.x - box.width / 2 for box in above)
    top, ends = 0.0, {}
    for row in rows:
        height = max(box.height for box in row)
        for box in row:
            box.x, box.y, ends[box] = box.x - left, top + height / 2, (top, top + height)
        top += height + DOWN
    routes = []
    for path, port in zip(paths, _ports(paths), strict=True):
        steps = pairwise(zip(path, [*(box.x for box in path[:-1]), port], strict=True))
        routes.append([point for (u, x0), (v, x1) in steps for point in ((x0, ends[u][1]), (x1, ends[v][0]))])
    return routes, (max(box.x + box.width / 2 for box in above), top - DOWN)


def _rows(boxes, edges):
    """The boxes and bends of each row, and each edge as a path from row to row; edges of one box share its bends."""
    at = [0] * len(boxes)
    for u, v, *_ in sorted(edges, key=lambda edge: edge[1]):
        at[v] = max(at[v], at[u] + 1)
    for source in set(range(len(boxes))) - {edge[1] for edge in edges}:
        at[source] = min([at[v] for u, v, *_ in edges if u == source], default=1) - 1
    rows = [[box for box, number in zip(boxes, at, strict=True) if number == row] for row in range(max(at) + 1)]
    paths, bends = [], {}
    for u, v, *_ in edges:
        passed = [(u, row) for row in range(at[u] + 1, at[v])]
        for key in passed:
            if key not in bends:
                bends[key] = Box("bend")
                rows[key[1]].append(bends[key])
        paths.append([boxes[u], *map(bends.get, passed), boxes[v]])
    return rows, paths


def _order(rows, above, below):
    """Sort the boxes in their rows: at first along the first arguments, then by medians; the others stay."""
    spot, stack = {}, [box for box in below if not below[box]]
    while stack:
        if (box := stack.pop()) not in spot:
            spot[box] = len(spot)
            stack += reversed(sorted(above[box], key=lambda one: one.kind == "bend"))
    for row in rows:
        row.sort(key=spot.get)
    for step in [1, -1] * (SWEEPS // 2):
        spot = {box: i for row in rows for i, box in enumerate(row)}
        near = above if step == 1 else below
        for row in rows[::step]:
            middle = {box: median_low(spot[one] for one in near[box]) for box in row if near[box]}
            following = iter(sorted(middle, key=middle.get))
            row[:] = [next(following) if box in middle else box for box in row]
            spot |= {box: i for i, box in enumerate(row)}


def _place(rows, above, below):
    """Draw each box to its most important neighbours, in the given order, with the gaps kept.

    Where a result is used several times, the first use stays below it and the others stand beside.
    """
    weights = {box: WEIGHTS[box.kind] for box in above}
    for row, following in pairwise(rows):
        for box in row:
            uses = [one for one in following if one in below[box] and one.kind == box.kind == "operation"]
            weights |= dict.fromkeys(uses[:1], 1.0)
    for step in [1, -1] * (SWEEPS // 2) + [1, 1]:
        near, far = (above, below) if step == 1 else (below, above)
        for row in rows[::step]:
            _spread(row, {box: _wanted(box, near[box] or far[box]) for box in row}, weights)


def _wanted(box, others):
    alike = [one.x for one in others if (one.kind == "operation") == (box.kind == "operation")]
    return fmean(alike or [one.x for one in others] or [box.x])


def _spread(row, wanted, weights):
    """The centres nearest to those wanted, in least squares, that keep order and gaps: pooled adjacent violators."""
    gaps = ((left.width + right.width) / 2 + ACROSS for left, right in pairwise(row))
    offsets, pools = list(accumulate(gaps, initial=0.0)), []
    for box, offset in zip(row, offsets, strict=True):
        value, weight, count = wanted[box] - offset, weights[box], 1
        while pools and pools[-1][0] > value:
            before, heavy, several = pools.pop()
            value = (before * heavy + value * weight) / (heavy + weight)
            weight, count = weight + heavy, count + several
        pools.append((value, weight, count))
    values = [value for value, _, count in pools for _ in range(count)]
    for box, value, offset in zip(row, values, offsets, strict=True):
        box.x = value + offset


def _ports(paths):
    """The x at which each path enters its last box: the middle for the one that comes from nearest above it."""
    entering, ports = defaultdict(list), [0.0] * len(paths)
    for i, path in enumerate(paths):
        entering[path[-1]].append(i)
    for box, several in entering.items():
        several.sort(key=lambda i: paths[i][-2].x)  # stable: equal ones in the order of the arguments
        distances = [abs(paths[i][-2].x - box.x) for i in several]
        middle = distances.index(min(distances))
        step = min(PORT, (box.width - 12) / (2 * max(middle, len(several) - 1 - middle, 1)))
        for k, i in enumerate(several):
            ports[i] = box.x + (k - middle) * step
    return ports
