"""Where the boxes of a directed graph without cycles are put: in rows and columns, as a log of branches is drawn.

A box lies one row below the lowest box that it depends on. An operation stays in the column of an argument that no
other operation has continued yet, else it begins a column further right: so a network without branches is one column.
Leaves and constants stand right of what is in the row above the first operation that needs them. Where an arrow passes
rows, a bend without height holds its place in one column, so arrows run between boxes and never through them.

Source  Sugiyama, Tagawa and Toda 1981, "Methods for visual understanding of hierarchical system structures" (rows and
        bends)
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, count, pairwise

ACROSS, DOWN = 22.0, 34.0  # the gaps between boxes of a row and between rows
BEND = 14.0  # the width that is kept free for an arrow
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
    cells, paths = _cells(boxes, edges)
    ends, heights = ([0.0] * (1 + max(cells)[0]) for _ in range(2))
    for column in sorted({column for _, column in cells}):
        here = [(row, found) for (row, at), found in cells.items() if at == column]
        axis = max(ends[row] + found[0].width / 2 for row, found in here)
        for row, found in here:
            ends[row] = axis - found[0].width / 2
            for box in found:
                box.x = ends[row] + box.width / 2
                ends[row] += box.width + ACROSS
                heights[row] = max(heights[row], box.height)
    tops = list(accumulate((height + DOWN for height in heights), initial=0.0))
    borders = {}
    for (row, _), found in cells.items():
        for box in found:
            box.y, borders[box] = tops[row] + heights[row] / 2, (tops[row], tops[row] + heights[row])
    routes = []
    for path, port in zip(paths, _ports(paths), strict=True):
        steps = pairwise(zip(path, [*(box.x for box in path[:-1]), port], strict=True))
        routes.append([point for (u, x0), (v, x1) in steps for point in ((x0, borders[u][1]), (x1, borders[v][0]))])
    return routes, (max(ends) - ACROSS, tops[-1] - DOWN)


def _cells(boxes, edges):
    """{(row, column): boxes and bends from left to right}, and each edge as a path from row to row.

    Edges of one box share its bends.
    """
    rows, columns, cells, bends = [0] * len(boxes), [0] * len(boxes), defaultdict(list), {}
    arguments, uses = defaultdict(list), defaultdict(list)
    for u, v, *_ in sorted(edges, key=lambda edge: edge[1]):
        rows[v] = max(rows[v], rows[u] + 1)
        arguments[v].append(u)
        uses[u].append(v)
    sources = [u for u in dict.fromkeys([*(edge[0] for edge in edges), *range(len(boxes))]) if u not in arguments]

    def free(column, passed):
        return not any((row, column) in cells for row in passed)

    def bend(u, passed, column):
        for row in passed:
            bends[u, row] = Box("bend")
            cells[row, column].append(bends[u, row])

    for v, above in arguments.items():
        made = [u for u in above if u in arguments]
        u = next((u for u in made if free(columns[u], range(rows[u] + 1, rows[v] + 1))), None)
        if u is not None:
            columns[v] = columns[u]
            bend(u, range(rows[u] + 1, rows[v]), columns[u])
        else:
            begin = max([columns[u] for u in made], default=0)
            columns[v] = next(column for column in count(begin) if free(column, [rows[v]]))
        cells[rows[v], columns[v]].append(boxes[v])
    for u in sources:
        rows[u], columns[u] = min([(rows[v] - 1, columns[v]) for v in uses[u]], default=(0, 0))
    for u, v, *_ in sorted(edges, key=lambda edge: -rows[edge[1]]):
        missing = [row for row in range(rows[u] + 1, rows[v]) if (u, row) not in bends]
        bend(u, missing, next(column for column in count(columns[u]) if free(column, missing)))
    for u in sources:
        cells[rows[u], columns[u]].append(boxes[u])
    return cells, [[boxes[u], *(bends[u, row] for row in range(rows[u] + 1, rows[v])), boxes[v]] for u, v, *_ in edges]


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
