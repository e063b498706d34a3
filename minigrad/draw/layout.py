"""Where the boxes of a directed graph without cycles are put: in layers, as few crossings and bends as is easy.

A box lies one layer below the lowest box that it depends on; one that depends on nothing lies right above the first
that needs it. Where an arrow passes layers, a bend without size holds its place in each, so arrows run between boxes
and never through them. Boxes of a layer are ordered by the median of their neighbours, downwards and upwards in
turn; then each is drawn to its most important neighbour, as far as those beside it let it.

Source  Sugiyama, Tagawa and Toda 1981, "Methods for visual understanding of hierarchical system structures"; Gansner,
        Koutsofios, North and Vo 1993, "A technique for drawing directed graphs"
"""

from itertools import accumulate, combinations, pairwise
from statistics import median_low

__all__ = ["arrange"]

BEND = 14.0  # the width that is kept free for an arrow
SWEEPS = 12


def arrange(sizes, edges, across=22.0, down=34.0):
    """(the centre (x, y) of each box, the points of each edge, the width and height of all).

    sizes   (width, height) of each box, in an order in which every edge leads from a lower to a higher index
    edges   (from, to) pairs
    across, down    the gaps between boxes of a layer and between layers
    An edge leaves its box straight down to the end of the layer and enters the next layer from straight above: its
    points are pairs (x, end of a layer), (x, beginning of the next). Edges of one box go the same way for as long as
    they can.
    """
    layer = _layers(len(sizes), edges)
    sizes, layer, paths = _with_bends(list(sizes), layer, edges)
    above, below = _neighbours(len(sizes), paths)
    rows = _ordered(layer, above, below, _first_order(sizes, above, below))
    x = _places(rows, sizes, above, below, across)
    heights = [max(sizes[v][1] for v in row) for row in rows]
    tops = [sum(heights[:i]) + i * down for i in range(len(rows))]
    left = min(x[v] - sizes[v][0] / 2 for v in range(len(sizes)))
    right = max(x[v] + sizes[v][0] / 2 for v in range(len(sizes)))
    routes, ends = [], _ports(paths, x, sizes)
    for path, end in zip(paths, ends, strict=True):
        places = [*(x[v] for v in path[:-1]), end]
        route = []
        for (u, x0), (v, x1) in pairwise(zip(path, places, strict=True)):
            route += [(x0 - left, tops[layer[u]] + heights[layer[u]]), (x1 - left, tops[layer[v]])]
        routes.append(route)
    centres = [(x[v] - left, tops[layer[v]] + heights[layer[v]] / 2) for v in range(len(sizes))]
    return centres, routes, (right - left, tops[-1] + heights[-1])


def _layers(count, edges):
    """The layer of each box: the longest path to it; what has no input lies right above the first that needs it."""
    layer = [0] * count
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        layer[v] = max(layer[v], layer[u] + 1)
    for source in set(range(count)) - {v for _, v in edges}:
        layer[source] = min([layer[v] for u, v in edges if u == source], default=1) - 1
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


def _first_order(sizes, above, below):
    """The place of each in a walk upwards from the ends, along the first argument first and along bends last."""
    place, stack = {}, [v for v in range(len(sizes)) if not below[v]]
    while stack:
        v = stack.pop()
        if v not in place:
            place[v] = len(place)
            stack += reversed(sorted(above[v], key=lambda u: not sizes[u][1]))
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
            # By the medians of their neighbours; those without any stay where they are.
            movable = (v for v in row if others[v])
            following = iter(sorted(movable, key=lambda v: median_low(spot[u] for u in others[v])))
            row[:] = [next(following) if others[v] else v for v in row]
            spot |= {v: i for i, v in enumerate(row)}
        if (count := _crossings(rows, below)) < fewest:
            best, fewest = [list(row) for row in rows], count
    return best


def _crossings(rows, below):
    total = 0
    for upper, lower in pairwise(rows):
        spot = {v: i for i, v in enumerate(lower)}
        ends = [(i, spot[v]) for i, u in enumerate(upper) for v in below[u]]
        total += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(ends, 2))
    return total


def _places(rows, sizes, above, below, across):
    """The x of each centre: drawn to its neighbours, in the given order, with the gaps kept.

    Where a result is used several times, the first use stays below it and the others stand beside.
    """
    real = [height > 0 for _, height in sizes]
    place = {v: i for row in rows for i, v in enumerate(row)}
    chain = [real[v] and bool(above[v]) for v in range(len(sizes))]  # an operation, neither a leaf nor a bend
    first = {min(ones, key=place.get) for u in place if chain[u] and (ones := [v for v in below[u] if chain[v]])}
    weight = [1.0 if v in first else 1e-2 if chain[v] else 1e-9 if real[v] else 1e-3 for v in range(len(sizes))]
    x = dict.fromkeys(place, 0.0)
    last = [[v] if above[v] else below[v] for v in range(len(sizes))]  # what has no input comes near what needs it
    for others in [above, below] * (SWEEPS // 2) + [above, last]:
        for row in reversed(rows) if others is below else rows:
            wanted = [_wanted(v, others[v], x, chain) for v in row]
            x |= zip(row, _spread(wanted, [weight[v] for v in row], [sizes[v][0] for v in row], across), strict=True)
    return x


def _wanted(v, others, x, chain):
    """Where a box or bend would like to be: at the mean of its most important neighbours."""
    if not others:
        return x[v]
    nearest = [x[u] for u in others if chain[u] == chain[v]] or [x[u] for u in others]
    return sum(nearest) / len(nearest)


def _spread(wanted, weights, widths, across):
    """The centres nearest to those wanted, in least squares, that keep order and gaps: pooled adjacent violators."""
    gaps = ((left + right) / 2 + across for left, right in pairwise(widths))
    offsets, pools = list(accumulate(gaps, initial=0.0)), []
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        value, count = want - offset, 1
        while pools and pools[-1][0] > value:
            before, heavy, several = pools.pop()
            value = (before * heavy + value * weight) / (heavy + weight)
            weight, count = weight + heavy, count + several
        pools.append((value, weight, count))
    values = [value for value, _, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(values, offsets, strict=True)]


def _ports(paths, x, sizes):
    """The x at which each edge enters its box: the middle for the one that comes from nearest above it."""
    entering, ends = {}, [0.0] * len(paths)
    for i, path in enumerate(paths):
        entering.setdefault(path[-1], []).append(i)
    for v, edges in entering.items():
        edges.sort(key=lambda i: x[paths[i][-2]])  # stable: equal ones in the order of the arguments
        middle = min(range(len(edges)), key=lambda k: abs(x[paths[edges[k]][-2]] - x[v]))
        step = min(16.0, (sizes[v][0] - 12.0) / (2 * max(middle, len(edges) - 1 - middle, 1)))
        for k, i in enumerate(edges):
            ends[i] = x[v] + (k - middle) * step
    return ends
