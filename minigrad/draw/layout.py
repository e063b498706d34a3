"""Where the boxes of a directed graph without cycles are put: in layers, as few crossings and bends as is easy.

A box lies one layer below the lowest box that it depends on; one that depends on nothing lies right above the first
that needs it. Where an arrow passes layers, a bend without size holds its place in each, so arrows run between boxes
and never through them. Boxes of a layer are ordered by the median of their neighbours, downwards and upwards in
turn; then each is drawn to its most important neighbour, as far as those beside it let it.

Source  Sugiyama, Tagawa and Toda 1981, "Methods for visual understanding of hierarchical system structures"; Gansner,
        Koutsofios, North and Vo 1993, "A technique for drawing directed graphs"
"""

from bisect import bisect_right, insort
from itertools import pairwise
from statistics import median

__all__ = ["arrange"]

BEND = 14.0  # the width that is kept free for an arrow
SWEEPS = 12


def arrange(sizes, edges, across=22.0, down=34.0):
    """(the centre (x, y) of each box, the points of each edge, the width and height of all).

    sizes   (width, height) of each box, in an order in which every edge leads from a lower to a higher index
    edges   (from, to) pairs
    across, down    the gaps between boxes of a layer and between layers
    An edge leaves its box straight down to the end of the layer and enters the next layer from straight above: its
    points are pairs (x, end of a layer), (x, beginning of the next).
    """
    layer = _layers(len(sizes), edges)
    sizes, layer, paths = _with_bends(list(sizes), layer, edges)
    above, below = _neighbours(len(sizes), paths)
    rows = _ordered(layer, above, below, _first_order(len(sizes), above))
    x = _places(rows, sizes, above, below, across)
    heights = [max(sizes[v][1] for v in row) for row in rows]
    tops = [sum(heights[:i]) + i * down for i in range(len(rows))]
    left = min(x[v] - sizes[v][0] / 2 for v in range(len(sizes)))
    right = max(x[v] + sizes[v][0] / 2 for v in range(len(sizes)))
    routes = []
    for path in paths:
        route = []
        for u, v in pairwise(path):
            route += [(x[u] - left, tops[layer[u]] + heights[layer[u]]), (x[v] - left, tops[layer[v]])]
        routes.append(route)
    centres = [(x[v] - left, tops[layer[v]] + heights[layer[v]] / 2) for v in range(len(sizes))]
    return centres, routes, (right - left, tops[-1] + heights[-1])


def _layers(count, edges):
    """The layer of each box: the longest path to it; what has no input lies right above the first that needs it."""
    layer, sources = [0] * count, set(range(count))
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        layer[v] = max(layer[v], layer[u] + 1)
        sources.discard(v)
    nearest = {}
    for u, v in edges:
        if u in sources:
            nearest[u] = min(nearest.get(u, layer[v] - 1), layer[v] - 1)
    for u, place in nearest.items():
        layer[u] = place
    return layer


def _with_bends(sizes, layer, edges):
    """Bends added behind the boxes, and each edge as a path from layer to layer; edges of one box share its bends."""
    layer, paths, bends = list(layer), [], {}
    for u, v in edges:
        path = [u]
        for between in range(layer[u] + 1, layer[v]):
            if (u, between) not in bends:
                bends[u, between] = len(sizes)
                sizes.append((BEND, 0.0))
                layer.append(between)
            path.append(bends[u, between])
        paths.append([*path, v])
    return sizes, layer, paths


def _neighbours(count, paths):
    """For each place those above it and those below it, in the order of the edges."""
    above, below = ([{} for _ in range(count)] for _ in range(2))
    for path in paths:
        for u, v in pairwise(path):
            above[v][u] = below[u][v] = None
    return [list(ones) for ones in above], [list(ones) for ones in below]


def _first_order(count, above):
    """The place of each in a walk upwards from the ends, along the first argument first."""
    place, used = {}, {u for ones in above for u in ones}
    stack = [v for v in range(count) if v not in used]
    while stack:
        v = stack.pop()
        if v not in place:
            place[v] = len(place)
            stack += reversed(above[v])
    return place


def _ordered(layer, above, below, place):
    """The places of each layer from left to right, with the fewest crossings of several tries."""
    rows = [[] for _ in range(max(layer) + 1)]
    for v in sorted(range(len(layer)), key=place.get):
        rows[layer[v]].append(v)
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        others = above if sweep % 2 == 0 else below
        spot = {v: i for row in rows for i, v in enumerate(row)}
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=lambda v: median(spot[u] for u in others[v]) if others[v] else spot[v])
            spot |= {v: i for i, v in enumerate(row)}
        if (count := _crossings(rows, below)) < fewest:
            best, fewest = [list(row) for row in rows], count
    return best


def _crossings(rows, below):
    total = 0
    for upper, lower in pairwise(rows):
        spot, ends = {v: i for i, v in enumerate(lower)}, []
        for u in upper:
            own = sorted(spot[v] for v in below[u])
            total += sum(len(ends) - bisect_right(ends, end) for end in own)
            for end in own:
                insort(ends, end)
    return total


def _places(rows, sizes, above, below, across):
    """The x of each centre: drawn to its neighbours, in the given order, with the gaps kept."""
    real = [height > 0 for _, height in sizes]
    chain = [real[v] and bool(above[v]) for v in range(len(sizes))]  # an operation, neither a leaf nor a bend
    weight = [8.0 if chain[v] else 1.0 if real[v] else 4.0 for v in range(len(sizes))]
    x = {}
    for row in rows:
        end = 0.0
        for v in row:
            x[v] = end + sizes[v][0] / 2
            end += sizes[v][0] + across
    for sweep in range(SWEEPS):
        others = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_wanted(v, others[v], x, chain, real) for v in row]
            x |= zip(row, _spread(wanted, [weight[v] for v in row], [sizes[v][0] for v in row], across), strict=True)
    return x


def _wanted(v, others, x, chain, real):
    """Where a box or bend would like to be: at the mean of its most important neighbours."""
    if not others:
        return x[v]
    rank = [2 * (chain[u] == chain[v]) + (real[u] == real[v]) for u in others]
    nearest = [x[u] for u, r in zip(others, rank, strict=True) if r == max(rank)]
    return sum(nearest) / len(nearest)


def _spread(wanted, weights, widths, across):
    """The centres nearest to those wanted, in least squares, that keep order and gaps: pooled adjacent violators."""
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2 + across)
    pools = []
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        pools.append([want - offset, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            value, total, count = pools.pop()
            before = pools[-1]
            before[0] = (before[0] * before[1] + value * total) / (before[1] + total)
            before[1], before[2] = before[1] + total, before[2] + count
    values = [value for value, _, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(values, offsets, strict=True)]
