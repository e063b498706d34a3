"""A graph written as SVG: no styles, scripts or identifiers, so that many fit into one page."""

import unicodedata
from html import escape
from itertools import pairwise

from .style import COLORS

__all__ = ["size_of", "written"]

SIZE, LINE, PADDING, MARGIN = 12, 16, 10, 16  # of letters, of a line, in a box, around the picture: pixels
FONT = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
LETTER = 0.61 * SIZE  # the width of a letter
LOOKS = {  # fill, border, dashes of the border, radius of the corners
    "operation": ("#E5F1F8", COLORS[0], "", 3),
    "leaf": ("#FDF1DC", COLORS[4], "", 14),
    "constant": ("#F3F3F3", "#666666", "5 3", 14),
}
MEANINGS = {"operation": "operation", "leaf": "leaf: gets a gradient", "constant": "kept, without a gradient"}


def size_of(title, lines):
    """The width and height of a box with this text."""
    return max(_width(text) for text in (title, *lines)) + 2 * PADDING, LINE * (1 + len(lines)) + PADDING


def written(graph):
    """The picture as text."""
    kinds = [kind for kind in LOOKS if any(box.kind == kind for box in graph.boxes)]
    legend, legend_width = _legend(kinds)
    width = max(graph.width, legend_width) + 2 * MARGIN
    height = graph.height + 2 * MARGIN + 2 * LINE
    arrows, drawn = [], {}
    for (u, v, name), route in zip(graph.edges, graph.routes, strict=True):
        # What an earlier arrow from the same box has in common with this one is drawn once.
        begin, drawn[u] = min(drawn.get(u, 0), len(route) - 2), max(drawn.get(u, 0), len(route) - 2)
        arrows.append(_arrow(graph.boxes[u], graph.boxes[v], route[begin:], name, joins=begin > 0))
    boxes = [_box(box) for box in graph.boxes]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:100%;height:auto" role="img" '
            f'aria-label="{escape(repr(graph))}">',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            f'<g font-family="{FONT}" font-size="{SIZE}" fill="black">',
            f'<g transform="translate({MARGIN} {MARGIN})">{legend}</g>',
            f'<g transform="translate({MARGIN + max(0, legend_width - graph.width) / 2:.1f} {MARGIN + 2 * LINE})">',
            *arrows,
            *boxes,
            "</g></g></svg>",
        ]
    )


def _legend(kinds):
    """What the borders mean, in one line, and its width."""
    parts, x = [], 0.0
    for kind in kinds:
        fill, border, dashes, radius = LOOKS[kind]
        parts.append(
            f'<rect x="{x:.1f}" y="1" width="24" height="14" rx="{min(radius, 7)}" fill="{fill}" '
            f'stroke="{border}" stroke-width="1.5"{_dashed(dashes)}/>'
            f'<text x="{x + 30:.1f}" y="12.5">{escape(MEANINGS[kind])}</text>'
        )
        x += 30 + _width(MEANINGS[kind]) + 24
    return "".join(parts), x - 24


def _box(box):
    fill, border, dashes, radius = LOOKS[box.kind]
    middle, top = box.x + box.width / 2, box.y + PADDING / 2 + SIZE
    texts = [f'<text x="{middle:.1f}" y="{top:.1f}" font-weight="bold">{escape(box.title)}</text>']
    for i, line in enumerate(box.lines, 1):
        texts.append(f'<text x="{middle:.1f}" y="{top + i * LINE:.1f}">{escape(line)}</text>')
    return (
        f'<g text-anchor="middle"><rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius}" fill="{fill}" stroke="{border}" stroke-width="1.5"{_dashed(dashes)}/>'
        f"{''.join(texts)}</g>"
    )


def _arrow(source, target, route, name, joins):
    """From the bottom of a box, or where it joins another arrow, through the gaps between layers, to another's top."""
    x, y = route[0]
    path = [f"M{x:.1f} {y if joins else source.y + source.height:.1f}V{y:.1f}"]
    for i, ((x0, y0), (x1, y1)) in enumerate(pairwise(route)):
        bend = (y0 + y1) / 2
        path.append(f"V{y1:.1f}" if i % 2 else f"C{x0:.1f} {bend:.1f} {x1:.1f} {bend:.1f} {x1:.1f} {y1:.1f}")
    x, tip = route[-1][0], target.y
    path.append(f"V{tip - 4:.1f}")
    return (
        f'<g><title>{escape(name)}</title><path d="{"".join(path)}" fill="none" stroke="#555555" stroke-width="1.2"/>'
        f'<path d="M{x - 4:.1f} {tip - 8:.1f}L{x:.1f} {tip:.1f}L{x + 4:.1f} {tip - 8:.1f}Z" fill="#555555"/></g>'
    )


def _dashed(dashes):
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _width(text):
    return LETTER * sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
