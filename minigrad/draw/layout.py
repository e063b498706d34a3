"""Where the boxes of a tape are put: operations one below the other, in the order in which they ran.

So backward goes through the picture from the bottom to the top. A Tensor that no operation made stands right of what is
in the row above the first operation that needs it. An arrow that passes rows runs in a lane left of the operations, so
arrows run between boxes and never through them. Arrows of one box share a lane.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate

ACROSS, DOWN = 22.0, 34.0  # the gaps between boxes of a row and between rows
LANE = 14.0  # between two lanes
PORT = 16.0  # between two arrows that enter the same box


@dataclass(eq=False)
class Box:
    """An operation, or a Tensor that none made.

    kind        "operation"; "leaf": its gradient is computed; "constant": kept for backward, without a gradient
    title       the name of the operation or of the Tensor
    lines       shape, type and bytes of what it holds or makes
    x, y        its centre, in pixels; width and height likewise
    """

    kind: str
    title: str
    lines: list = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0


def arrange(boxes, edges):
    """Place boxes of known sizes; returns the points of each edge and the width and height of all.

    boxes   operations in the order of their rows
    edges   (from, to, ...) indices
    An edge leaves its box straight down to the end of the row and enters the next row from straight above: its points
    are pairs (x, end of a row), (x, beginning of the next).
    """
    takers, cells = defaultdict(list), defaultdict(list)
    for u, v, *_ in edges:
        takers[u].append(v)
    row = {i: number for number, i in enumerate((i for i, box in enumerate(boxes) if box.kind == "operation"), 1)}
    for i in dict.fromkeys([*row, *takers, *range(len(boxes))]):
        row.setdefault(i, min((row[v] for v in takers.get(i, ())), default=1) - 1)
        cells[row[i]].append(boxes[i])
    lanes = _lanes(row, takers)
    left = ACROSS + LANE * (1 + max(lanes.values())) if lanes else 0.0
    middle = left + max(found[0].width for found in cells.values()) / 2
    tops = list(accumulate((max(box.height for box in cells[n]) + DOWN for n in range(len(cells))), initial=0.0))
    for number, found in cells.items():
        end = middle - found[0].width / 2
        for box in found:
            box.x, box.y = end + box.width / 2, (tops[number] + tops[number + 1] - DOWN) / 2
            end += box.width + ACROSS
    routes, entering = [], defaultdict(list)
    for u, v, *_ in edges:
        routes.append([(boxes[u].x, tops[row[u] + 1] - DOWN)])
        entering[v].append(routes[-1])
        if row[v] > row[u] + 1:
            x = left - ACROSS - LANE * (lanes[u] + 0.5)
            routes[-1] += [(x, tops[row[u] + 1]), (x, tops[row[v]] - DOWN)]
    for v, several in entering.items():
        _enter(boxes[v], several, tops[row[v]])
    return routes, (max(box.x + box.width / 2 for box in boxes), tops[-1] - DOWN)


def _lanes(row, takers):
    """{index of a box with an arrow that passes rows: its lane}, counted from the operations on."""
    lanes, ends = {}, []  # ends: the row from which each lane is free
    for u in sorted(takers, key=row.get):
        end = max(row[v] for v in takers[u])
        if end > row[u] + 1:
            lanes[u] = next((lane for lane, free in enumerate(ends) if free <= row[u] + 1), len(ends))
            ends[lanes[u] : lanes[u] + 1] = [end]
    return lanes


def _enter(box, routes, top):
    """Lead routes into a box, side by side: the one that comes from nearest above it in the middle."""
    routes = sorted(routes, key=lambda route: route[-1][0])  # stable: equal ones in the order of the arguments
    middle = min(range(len(routes)), key=lambda k: abs(routes[k][-1][0] - box.x))
    step = min(PORT, (box.width - 12) / (2 * max(middle, len(routes) - 1 - middle, 1)))
    for k, route in enumerate(routes):
        route.append((box.x + (k - middle) * step, top))
